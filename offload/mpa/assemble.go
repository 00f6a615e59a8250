package mpa

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/wire"
)

// minULPDU is the length of the shortest DDP segment, which is only a tagged header.
const minULPDU = wire.TaggedLen

// sizes are the lengths of assembly buffers in octets. The first fits an FPDU within
// one segment, the second an FPDU within a jumbo frame or one of 16 KiB of payload
// (ExtLongFPDUs), and the third any FPDU.
var sizes = [...]int{2048, 16384 + 128, wire.MaxFPDULen}

// assembly collects the octets of an FPDU in one buffer as they arrive. assembly leaves
// the Markers out. An assembly has no buffer until it needs one.
type assembly struct {
	crcOn, markersOn bool

	buf   []byte // length, ULPDU, padding and CRC; only the first have octets are valid
	have  int
	need  int    // length of the whole FPDU in octets; 0 until it is known
	short bool   // the length is known and too short for DDP
	crc   uint32 // CRC of the octets that came, with Markers, without the CRC field

	// Position in the stream, to find the Markers.
	taken     int                  // octets of this FPDU that came, Markers included
	begun     int                  // octets of the FPDU that came before the length field
	phase     int                  // octets since the start of the last Marker; below MarkerLen, the next octet belongs to the Marker
	marker    [wire.MarkerLen]byte // the Marker that is arriving
	badMarker bool                 // a Marker of this FPDU had a wrong pointer
}

// empty reports whether no octet of an FPDU has come, nor of a Marker in front of it.
func (a *assembly) empty() bool { return a.taken == 0 }

func (a *assembly) whole() bool { return a.need != 0 && a.have == a.need }

// reset prepares for the next FPDU. reset keeps badMarker, because a bad Marker is a
// permanent fault: no FPDU follows it.
func (a *assembly) reset() {
	a.have, a.need, a.crc, a.taken, a.begun = 0, 0, 0, 0, 0
}

// take moves the octets of b that belong to the FPDU. take returns their number.
func (a *assembly) take(b []byte) int {
	before := len(b)
	for len(b) > 0 && !a.whole() && !a.short {
		if a.markersOn && a.phase < wire.MarkerLen {
			b = b[a.takeMarker(b):]
		} else {
			b = b[a.takePlain(b):]
		}
	}
	return before - len(b)
}

// takeMarker moves octets of a Marker. takeMarker returns their number.
func (a *assembly) takeMarker(b []byte) int {
	n := copy(a.marker[a.phase:], b)
	a.sum(b[:n])
	a.taken += n
	if a.phase += n; a.phase < wire.MarkerLen {
		return n
	}
	if a.have == 0 { // the FPDU begins directly behind the Marker
		a.begun = a.taken
	}
	// RFC 5044 §4.3: the pointer counts the octets from the length field to the first
	// octet of the Marker.
	want := 0
	if a.have > 0 {
		want = a.taken - wire.MarkerLen - a.begun
	}
	a.badMarker = a.badMarker || wire.MarkerPointer(a.marker[:]) != uint16(want)
	return n
}

// takePlain moves octets outside Markers. takePlain stops at the next Marker, at the
// end of the length field or at the end of the FPDU. takePlain returns the number of
// octets.
func (a *assembly) takePlain(b []byte) int {
	until := a.need
	if a.need == 0 {
		until = wire.FPDUHeadLen
		a.room(until)
	}
	n := min(len(b), until-a.have)
	if a.markersOn {
		n = min(n, wire.MarkerSpacing-a.phase)
		a.phase = (a.phase + n) % wire.MarkerSpacing
	}
	copy(a.buf[a.have:], b[:n])
	covered := n
	if a.need != 0 {
		covered = min(max(a.need-wire.CRCLen-a.have, 0), n)
	}
	a.sum(b[:covered])
	a.have += n
	a.taken += n
	if a.need == 0 && a.have == wire.FPDUHeadLen {
		a.measure()
	}
	return n
}

// measure reads the length field of the FPDU.
func (a *assembly) measure() {
	n := int(binary.BigEndian.Uint16(a.buf))
	if a.short = n < minULPDU; !a.short {
		a.need = wire.FPDULen(n)
		a.room(a.need)
	}
}

// room makes the buffer long enough for n octets.
func (a *assembly) room(n int) {
	if n <= len(a.buf) {
		return
	}
	for _, size := range sizes {
		if n <= size {
			buf := make([]byte, size)
			copy(buf, a.buf[:a.have])
			a.buf = buf
			return
		}
	}
}

func (a *assembly) sum(b []byte) {
	if a.crcOn {
		a.crc = wire.UpdateCRC32C(a.crc, b)
	}
}

// ulpdu returns the ULPDU of the complete FPDU and its Fault. The caller may use the
// ULPDU only if the Fault is OK.
func (a *assembly) ulpdu() ([]byte, Fault) {
	end := wire.FPDUHeadLen + int(binary.BigEndian.Uint16(a.buf))
	ulpdu := a.buf[wire.FPDUHeadLen:end:end]
	switch {
	case a.crcOn && a.crc != wire.ReadCRC32C(a.buf[a.need-wire.CRCLen:]):
		return ulpdu, BadCRC
	case a.badMarker:
		return nil, BadMarker
	}
	return ulpdu, OK
}
