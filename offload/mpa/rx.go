package mpa

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// Deframer finds the FPDUs of one direction of a connection. Only the goroutine that
// runs the connection may use it.
//
// If an FPDU lies within one view, Next returns it in place. Otherwise Next assembles
// the FPDU in a buffer and consumes all but the last octet. The receive window
// therefore need not hold the whole FPDU. Done consumes the last octet in either case:
// the stream's EOF is not true before Done was called for the last FPDU.
type Deframer struct {
	crc, markers bool
	fault        Fault // the first fault; after a fault Next delivers nothing

	// sound is the length of the FPDU at the head of the stream if that FPDU was
	// checked and is correct. 0 means that no FPDU was checked since Done.
	sound int

	unsummed []byte // ULPDU that Unsummed returns
	imported bool   // see Import: nothing proves that the stream is the one of the state
	assembly assembly
	views    [4][]byte // a field, because a local array in Next would escape to the heap
}

// NewDeframer returns a Deframer at the beginning of full operation. Only the Request
// or Reply of the stream has been consumed. crc says whether to check the CRC. markers
// says that the peer sends Markers, because this end has asked for them.
func NewDeframer(crc, markers bool) *Deframer {
	return &Deframer{crc: crc, markers: markers, assembly: assembly{crcOn: crc, markersOn: markers}}
}

// Next returns the ULPDU of the oldest FPDU for which Done was not called. If Next
// returns nil and OK, it needs more octets and has consumed the octets that are there.
// The ULPDU is valid until Done, or until the ULP method returns. Called again before
// Done, Next returns the same ULPDU.
//
// A Fault is permanent: the framing of the stream is lost.
//
// Next allocates if it must assemble an FPDU that is longer than every one before. Next
// allocates at most once for each of the assembly's sizes in a connection's life.
func (d *Deframer) Next(s stream.Stream) (ulpdu []byte, f Fault) {
	if d.fault != OK {
		return nil, d.fault
	}
	if !d.markers && d.assembly.empty() {
		ulpdu, d.fault = d.inPlace(s)
		if ulpdu != nil || d.fault != OK {
			return ulpdu, d.fault
		}
	}
	ulpdu, d.fault = d.assemble(s)
	return ulpdu, d.fault
}

// Done releases the FPDU that Next returned and consumes the rest of its octets.
func (d *Deframer) Done(s stream.Stream) {
	if d.sound != 0 {
		s.Consume(d.sound)
		d.sound = 0
		return
	}
	if !d.assembly.whole() {
		panic("mpa: Done without an FPDU")
	}
	s.Consume(1)
	d.assembly.reset()
}

// Partial reports whether only a part of an FPDU has arrived. If so, the end of the
// stream is an error. Partial is valid after Next has returned nil.
func (d *Deframer) Partial(stream.Stream) bool {
	return !d.assembly.empty() && !d.assembly.whole()
}

// inPlace looks for a whole FPDU in the first view. inPlace returns nil and OK if there
// is none.
func (d *Deframer) inPlace(s stream.Stream) ([]byte, Fault) {
	if s.Views(d.views[:1]) == 0 || len(d.views[0]) < wire.FPDUHeadLen {
		return nil, OK
	}
	b := d.views[0]
	n := int(binary.BigEndian.Uint16(b))
	if n < minULPDU {
		return nil, BadLength
	}
	total := wire.FPDULen(n)
	if len(b) < total {
		return nil, OK
	}
	covered := total - wire.CRCLen
	ulpdu := b[wire.FPDUHeadLen : wire.FPDUHeadLen+n : wire.FPDUHeadLen+n]
	if d.crc && d.sound == 0 && wire.CRC32C(b[:covered]) != wire.ReadCRC32C(b[covered:]) {
		d.suspect(ulpdu, b[covered:])
		return nil, BadCRC
	}
	d.sound = total
	return ulpdu, OK
}

// suspect keeps the ULPDU of an FPDU with a bad CRC if its CRC field is 0.
func (d *Deframer) suspect(ulpdu, crc []byte) {
	if binary.BigEndian.Uint32(crc) == 0 {
		d.unsummed = ulpdu
	}
}

// Unsummed returns the ULPDU of the FPDU for which Next has returned BadCRC, if the CRC
// field of that FPDU is 0. Otherwise it returns nil. The sender of such an FPDU may not
// know that the CRC is in use. The caller may use the ULPDU only to find a reason for
// the end of the connection. The ULPDU is valid until the ULP method returns.
func (d *Deframer) Unsummed() []byte { return d.unsummed }

// assemble moves octets from the stream into the assembly until the assembly holds a
// whole FPDU.
func (d *Deframer) assemble(s stream.Stream) ([]byte, Fault) {
	a := &d.assembly
	d.sound = 0 // the views may have other boundaries than in the last call
	if d.imported && a.whole() && s.Views(d.views[:1]) == 0 {
		return nil, BadLength // its last octet is missing, so this is another stream
	}
	for !a.whole() {
		views := d.views[:s.Views(d.views[:])]
		if len(views) == 0 {
			return nil, OK
		}
		taken := 0
		for _, v := range views {
			taken += a.take(v)
		}
		if a.whole() {
			taken-- // Done consumes the last octet
		}
		s.Consume(taken)
		if a.short {
			return nil, BadLength
		}
	}
	ulpdu, f := a.ulpdu()
	if f == BadCRC {
		d.suspect(ulpdu, a.buf[a.need-wire.CRCLen:])
		return nil, f
	}
	return ulpdu, f
}
