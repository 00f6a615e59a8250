package mpa

import (
	"bytes"
	"fmt"

	"github.com/stag-rdma/stag/offload/wire"
)

// Request returns the frame that offers o. The error describes every fault of o.
func (o Offer) Request() ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	h := wire.MPAFields{
		Flags:    flag(wire.MPACRC, !o.NoCRC) | flag(wire.MPAMarkers, o.Markers),
		Revision: o.revision(),
	}
	enhanced := h.Revision == revisionEnhanced
	if err := fits(len(o.Private), enhanced, o.Extensions); err != nil {
		return nil, err
	}
	private := trailed(o.Private, false, o.Extensions)
	if !enhanced {
		return build(h, nil, private)
	}
	return build(h, &wire.MPAEnhancedFields{
		PeerToPeer: o.PeerToPeer, Write: o.PeerToPeer, Read: o.offersRead(),
		IRD: o.IRD, ORD: o.ORD,
	}, private)
}

func (o Offer) revision() uint8 {
	if o.Revision == 0 {
		return revisionEnhanced
	}
	return o.Revision
}

// offersRead reports whether the Request offers an empty RDMA Read as RTR. With ORD 0
// such a Read would exceed the depth.
func (o Offer) offersRead() bool { return o.PeerToPeer && o.ORD > 0 }

// ReadReply reads the peer's whole Reply to the Offer o and returns the agreement.
// The error is a *Rejected, a *FrameError or a *Mismatch. After a *Mismatch the
// caller must send the peer a Terminate.
func (o Offer) ReadReply(frame []byte) (Agreed, error) {
	p, err := parse(frame, true)
	if err != nil {
		return Agreed{}, err
	}
	if p.flags.Has(wire.MPAReject) {
		return Agreed{}, &Rejected{
			Private: bytes.Clone(p.private), PeerIRD: p.block.IRD, PeerORD: p.block.ORD,
			Markers: o.Markers && len(p.private) == 0,
		}
	}
	if p.revision != o.revision() {
		return Agreed{}, frameError("the peer answers in revision %d to a Request of revision %d", p.revision, o.revision())
	}
	if !p.enhanced && o.revision() == revisionEnhanced {
		return Agreed{}, frameError("the peer's Reply has no read depths, though the Request had: try revision 1")
	}
	a := Agreed{
		Initiator: true, Revision: p.revision,
		CRC:         !o.NoCRC || p.flags.Has(wire.MPACRC),
		SendMarkers: p.flags.Has(wire.MPAMarkers), ReceiveMarkers: o.Markers,
		IRD: o.IRD, ORD: o.ORD, Enhanced: p.enhanced, PeerIRD: p.block.IRD, PeerORD: p.block.ORD,
	}
	a.Private, a.Extensions = o.readTrailer(p.private)
	if p.enhanced {
		err = o.settle(&a, p.block)
	}
	if err != nil {
		return Agreed{}, err
	}
	return a, nil
}

// readTrailer splits the private data of a Reply into the octets of the peer's
// application and the agreed extensions. Without Extensions in the Offer the Reply can
// have no trailer, and all octets belong to the application.
func (o Offer) readTrailer(private []byte) ([]byte, wire.Extensions) {
	if o.Extensions == 0 {
		return bytes.Clone(private), 0
	}
	private, t, _ := wire.CutMPATrailer(private, true)
	return bytes.Clone(private), t.Extensions & o.Extensions
}

// settle applies the Reply's Enhanced block (RFC 6581 §9.1, §9.2).
func (o Offer) settle(a *Agreed, reply wire.MPAEnhancedFields) (err error) {
	if reply.IRD != wire.NoDepth {
		a.ORD = min(a.ORD, reply.IRD)
	}
	if reply.ORD != wire.NoDepth && reply.ORD > a.IRD {
		return &Mismatch{CodeInsufficientIRD, fmt.Sprintf("wants %d RDMA Reads under way at a time", reply.ORD),
			fmt.Sprintf("we offered to serve %d", a.IRD)}
	}
	if a.RTR, err = o.chooseRTR(reply); err != nil {
		return err
	}
	if a.RTR == RTRRead && a.ORD == 0 {
		return &Mismatch{CodeInsufficientIRD, "wants to begin with an empty RDMA Read",
			"it serves none (IRD 0)"}
	}
	return nil
}

// chooseRTR chooses an RTR message that both ends accept. chooseRTR prefers a Write to
// a Read.
func (o Offer) chooseRTR(reply wire.MPAEnhancedFields) (RTR, error) {
	switch {
	case !o.PeerToPeer && !reply.PeerToPeer:
		return NoRTR, nil
	case !o.PeerToPeer:
		return NoRTR, &Mismatch{CodeNoRTR, "asks for a first message of peer-to-peer mode", "we offered none"}
	case !reply.PeerToPeer:
		return NoRTR, &Mismatch{CodeNoRTR, "refuses peer-to-peer mode", "we offered it"}
	case reply.Write:
		return RTRWrite, nil
	case reply.Read && o.offersRead():
		return RTRRead, nil
	}
	return NoRTR, &Mismatch{CodeNoRTR, "has none of our first messages of peer-to-peer mode", "we can begin with no other"}
}
