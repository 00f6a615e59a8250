package mpa

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// Tail identifies an FPDU of a stream.
type Tail struct {
	End uint32 // position of the octet behind the FPDU, as stream.Segments counts
	CRC uint32 // CRC field of the FPDU
}

// Tail returns the Tail of the FPDU that Next has returned. The FPDUs must have a CRC.
func (d *Deframer) Tail(s stream.Segments) Tail {
	if d.sound != 0 {
		return Tail{s.Position() + uint32(d.sound), binary.BigEndian.Uint32(d.views[0][d.sound-wire.CRCLen:])}
	}
	a := &d.assembly
	return Tail{s.Position() + 1, binary.BigEndian.Uint32(a.buf[a.need-wire.CRCLen:])}
}

// Finder finds the complete FPDUs in octets behind a hole in the stream, where the
// Deframer cannot look yet. A Finder must know where an FPDU begins (RFC 5044 §5). A
// Marker points at the beginning. Without Markers, the peer must have promised that
// segments begin with an FPDU. The CRC alone proves nothing: payload can contain octets
// that look like an FPDU with a good CRC. The FPDUs must have a CRC nevertheless.
type Finder struct {
	markers  bool
	assembly assembly

	octets   []byte // the rest of the run; an FPDU begins with its first octet
	position uint32 // position of the first octet of octets
	phase    int    // octets since the start of the last Marker before octets
}

// NewFinder returns a Finder for a stream with a CRC. markers says that the peer sends
// Markers.
func NewFinder(markers bool) *Finder {
	return &Finder{markers: markers, assembly: assembly{crcOn: true, markersOn: markers}}
}

// Look makes Next return the FPDUs of r. d is the Deframer of the stream s. Its Next must
// have returned nil, so that it has consumed every octet in order.
func (f *Finder) Look(d *Deframer, s stream.Segments, r stream.Run) {
	f.octets, f.position = nil, r.Position
	if !f.markers {
		if r.Whole {
			f.octets = r.Octets
		}
		return
	}
	distance := r.Position - s.Position()
	f.phase = (d.assembly.phase + int(distance%wire.MarkerSpacing)) % wire.MarkerSpacing
	if at := f.first(r.Octets); at >= 0 {
		f.octets = r.Octets
		f.skip(at)
	}
}

// first returns the offset in b at which the first FPDU begins to which a Marker in b
// points. first returns -1 if there is none. A Marker directly in front of the length
// field belongs to the FPDU.
func (f *Finder) first(b []byte) int {
	at := (wire.MarkerSpacing - f.phase) % wire.MarkerSpacing
	for ; at+wire.MarkerLen <= len(b); at += wire.MarkerSpacing {
		begin := at - int(wire.MarkerPointer(b[at:]))
		// An FPDU directly behind a Marker that is not in b cannot be checked: its CRC covers the Marker.
		if begin >= 0 && (begin == at || (f.phase+begin)%wire.MarkerSpacing != wire.MarkerLen) {
			return begin
		}
	}
	return -1
}

// skip removes the first n octets of the run.
func (f *Finder) skip(n int) {
	f.octets, f.position = f.octets[n:], f.position+uint32(n)
	f.phase = (f.phase + n) % wire.MarkerSpacing
}

// Next returns the ULPDU of the next complete FPDU of the run. ok is false if there is
// none, or if it has an error. The Deframer reports the error when the hole is filled.
// The ULPDU is valid until the next call of Next, or until the ULP method returns.
func (f *Finder) Next() (ulpdu []byte, t Tail, ok bool) {
	if f.markers {
		ulpdu, t.CRC, ok = f.assemble()
	} else {
		ulpdu, t.CRC, ok = f.inPlace()
	}
	t.End = f.position
	return ulpdu, t, ok
}

// inPlace is Next without Markers.
func (f *Finder) inPlace() (ulpdu []byte, crc uint32, ok bool) {
	b := f.octets
	if len(b) < wire.FPDUHeadLen {
		return nil, 0, false
	}
	n := int(binary.BigEndian.Uint16(b))
	total := wire.FPDULen(n)
	if n < minULPDU || len(b) < total || wire.CRC32C(b[:total-wire.CRCLen]) != wire.ReadCRC32C(b[total-wire.CRCLen:]) {
		f.octets = nil
		return nil, 0, false
	}
	f.skip(total)
	end := wire.FPDUHeadLen + n
	return b[wire.FPDUHeadLen:end:end], binary.BigEndian.Uint32(b[total-wire.CRCLen:]), true
}

// assemble is Next with Markers.
func (f *Finder) assemble() (ulpdu []byte, crc uint32, ok bool) {
	a := &f.assembly
	a.reset()
	a.phase, a.short, a.badMarker = f.phase, false, false
	n := a.take(f.octets)
	if !a.whole() {
		f.octets = nil
		return nil, 0, false
	}
	ulpdu, fault := a.ulpdu()
	if fault != OK {
		f.octets = nil
		return nil, 0, false
	}
	f.skip(n)
	return ulpdu, binary.BigEndian.Uint32(a.buf[a.need-wire.CRCLen:]), true
}
