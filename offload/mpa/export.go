package mpa

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/wire"
)

// DeframerState is the state of a Deframer between two steps. The octets of the stream
// that have not been consumed are the stream's affair: Next checks an FPDU that was not
// Done again.
type DeframerState struct {
	Fault Fault
	FPDU  []byte // octets of the FPDU that have been consumed: length, ULPDU, padding and CRC, without Markers
	CRC   uint32 // CRC of the octets that came

	Taken, Begun, Phase int // see assembly
	Marker              [wire.MarkerLen]byte
	BadMarker, Short    bool
}

// Code codes the state.
func (s *DeframerState) Code(c *pack.Coder) {
	pack.Uint(c, &s.Fault)
	c.Octets(&s.FPDU, wire.MaxFPDULen)
	pack.Uint(c, &s.CRC)
	most := len(s.FPDU) + (len(s.FPDU)/(wire.MarkerSpacing-wire.MarkerLen)+2)*wire.MarkerLen
	pack.Int(c, &s.Taken, len(s.FPDU), most)
	pack.Int(c, &s.Begun, 0, most)
	pack.Int(c, &s.Phase, 0, wire.MarkerSpacing-1)
	c.Fixed(s.Marker[:])
	c.Bool(&s.BadMarker)
	c.Bool(&s.Short)
	if s.Fault > BadLength || s.Short && s.Fault == OK {
		c.Fail("the MPA fault %d; too short: %v", s.Fault, s.Short)
	}
	if n := len(s.FPDU); n > wire.FPDUHeadLen && n > wire.FPDULen(int(binary.BigEndian.Uint16(s.FPDU))) {
		c.Fail("%d octets of a shorter FPDU", n)
	}
}

// Export returns the state of the Deframer.
func (d *Deframer) Export() DeframerState {
	a := &d.assembly
	return DeframerState{
		Fault: d.fault, FPDU: append([]byte(nil), a.buf[:a.have]...), CRC: a.crc,
		Taken: a.taken, Begun: a.begun, Phase: a.phase, Marker: a.marker, BadMarker: a.badMarker, Short: a.short,
	}
}

// Import gives the state to a new Deframer, whose stream continues where the other
// Deframer has left it.
func (d *Deframer) Import(s DeframerState) {
	d.fault, d.imported = s.Fault, true
	a := &d.assembly
	a.room(len(s.FPDU))
	a.have = copy(a.buf, s.FPDU)
	a.crc, a.taken, a.begun, a.phase = s.CRC, s.Taken, s.Begun, s.Phase
	a.marker, a.badMarker, a.short = s.Marker, s.BadMarker, s.Short
	if a.have >= wire.FPDUHeadLen && !a.short {
		a.measure()
	}
}

// Phase returns the distance of the next octet from the start of the last Marker.
func (f *Framer) Phase() int { return f.phase }

// SetPhase sets the distance of the next octet from the start of the last Marker, 0 to
// wire.MarkerSpacing-1. The Framer must be new.
func (f *Framer) SetPhase(phase int) { f.phase = phase }

// Code codes the values of a connection.
func (a *Agreed) Code(c *pack.Coder) {
	c.Bool(&a.Initiator)
	c.Bool(&a.RFC7306)
	c.Bool(&a.Eager)
	pack.Uint(c, &a.Revision)
	c.Bool(&a.CRC)
	c.Bool(&a.SendMarkers)
	c.Bool(&a.ReceiveMarkers)
	pack.Uint(c, &a.IRD)
	pack.Uint(c, &a.ORD)
	c.Bool(&a.Enhanced)
	pack.Uint(c, &a.PeerIRD)
	pack.Uint(c, &a.PeerORD)
	pack.Uint(c, &a.RTR)
	c.Octets(&a.Private, wire.MPAMaxPrivate)
	pack.Uint(c, &a.Extensions)
	if a.IRD > MaxDepth || a.ORD > MaxDepth || a.RTR > RTRSend {
		c.Fail("read depths %d and %d, ready-to-receive message %d", a.IRD, a.ORD, a.RTR)
	}
}
