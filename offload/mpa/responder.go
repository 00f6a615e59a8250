package mpa

import (
	"bytes"

	"github.com/stag-rdma/stag/offload/wire"
)

// Request is an initiator's Request as the responder reads it.
type Request struct {
	Revision uint8 // 1 or 2
	Markers  bool  // the initiator asks the responder to send Markers
	CRC      bool  // the initiator wants the CRC; otherwise the responder's Offer decides

	// Enhanced is true if the Request has read depths. The other fields up to ORD are
	// valid only if Enhanced is true.
	Enhanced   bool
	PeerToPeer bool // the initiator will begin with one of the RTR messages that it offers
	OfferWrite bool
	OfferRead  bool
	OfferSend  bool
	IRD, ORD   uint16 // the initiator's depths as sent; wire.NoDepth means "not negotiated"

	Private    []byte          // private data from the initiator's application, without the trailer
	Extensions wire.Extensions // extensions that the initiator offers; 0 without a trailer
}

// ReadRequest reads a whole Request. The error is a *FrameError.
func ReadRequest(frame []byte) (Request, error) {
	p, err := parse(frame, false)
	if err != nil {
		return Request{}, err
	}
	switch p.revision {
	case 0:
		return Request{}, frameError("the peer speaks revision 0 (RDMAC's); we speak 1 and 2")
	case revisionPlain, revisionEnhanced:
	default:
		return Request{}, frameError("the peer speaks revision %d; we speak 1 and 2", p.revision)
	}
	r := Request{
		Revision: p.revision, Markers: p.flags.Has(wire.MPAMarkers), CRC: p.flags.Has(wire.MPACRC),
		Enhanced: p.enhanced, PeerToPeer: p.block.PeerToPeer, IRD: p.block.IRD, ORD: p.block.ORD,
	}
	private, t, _ := wire.CutMPATrailer(p.private, false)
	r.Private, r.Extensions = bytes.Clone(private), t.Extensions
	if r.PeerToPeer { // without PeerToPeer these bits have no meaning
		r.OfferWrite, r.OfferRead, r.OfferSend = p.block.Write, p.block.Read, p.block.Send
	}
	return r, nil
}

// chooseRTR chooses the RTR message of a peer-to-peer connection. A Write costs
// nothing, a Read takes a place of the IRD, and a Send takes a receive buffer. If the
// initiator offers none, chooseRTR returns the Write, because the Reply must name one
// (RFC 6581 §9.2). The initiator then decides whether it can begin with a Write.
func (r Request) chooseRTR() RTR {
	switch {
	case !r.PeerToPeer:
		return NoRTR
	case r.OfferWrite:
		return RTRWrite
	case r.OfferRead:
		return RTRRead
	case r.OfferSend:
		return RTRSend
	}
	return RTRWrite
}

// Accept returns the Reply that accepts the Request, and the agreement. Accept checks
// Revision and PeerToPeer of the Offer, but takes both values from the Request. The
// error describes every fault of the Offer. After an error the caller can still call
// Reject.
func (r Request) Accept(o Offer) (reply []byte, a Agreed, err error) {
	o.Revision, o.PeerToPeer = 0, false
	if err := o.check(); err != nil {
		return nil, Agreed{}, err
	}
	a = Agreed{
		Revision: r.Revision, CRC: r.CRC || !o.NoCRC,
		SendMarkers: r.Markers, ReceiveMarkers: o.Markers,
		IRD: o.IRD, ORD: o.ORD, Enhanced: r.Enhanced, PeerIRD: r.IRD, PeerORD: r.ORD,
		Private: bytes.Clone(r.Private), Extensions: r.Extensions & o.Extensions,
	}
	if err := fits(len(o.Private), r.Enhanced, o.Extensions); err != nil {
		return nil, Agreed{}, err
	}
	var block *wire.MPAEnhancedFields
	if r.Enhanced {
		block = r.settle(&a)
	}
	h := wire.MPAFields{
		Reply: true, Revision: r.Revision,
		Flags: flag(wire.MPACRC, a.CRC) | flag(wire.MPAMarkers, o.Markers),
	}
	if reply, err = build(h, block, trailed(o.Private, true, a.Extensions)); err != nil {
		return nil, Agreed{}, err
	}
	return reply, a, nil
}

// settle decides the depths and the RTR message. settle returns the Enhanced block of
// the Reply (RFC 6581 §9.1, §9.2). If the initiator does not negotiate a depth, the
// Reply does not negotiate that depth either. The responder then keeps the depth of its
// Offer.
func (r Request) settle(a *Agreed) *wire.MPAEnhancedFields {
	if a.RTR = r.chooseRTR(); a.RTR == RTRRead {
		a.IRD = max(a.IRD, 1) // the empty Read needs a place
	}
	block := r.block(a.RTR)
	block.IRD, block.ORD = wire.NoDepth, wire.NoDepth
	if r.ORD != wire.NoDepth {
		block.IRD = a.IRD
	}
	if r.IRD != wire.NoDepth {
		a.ORD = min(a.ORD, r.IRD)
		block.ORD = a.ORD
	}
	return block
}

// block returns the Enhanced block of a Reply. The block has exactly one RTR message,
// because several RTR messages confuse Chelsio's driver.
func (r Request) block(rtr RTR) *wire.MPAEnhancedFields {
	return &wire.MPAEnhancedFields{PeerToPeer: r.PeerToPeer,
		Write: rtr == RTRWrite, Read: rtr == RTRRead, Send: rtr == RTRSend}
}

// Reject returns the Reply that refuses the connection. private is data for the
// initiator's application, and has the same limit as Offer.Private. If the Request has
// read depths, the Reply has read depths too, both 0.
func (r Request) Reject(private []byte) ([]byte, error) {
	h := wire.MPAFields{Reply: true, Revision: r.Revision, Flags: wire.MPAReject | flag(wire.MPACRC, r.CRC)}
	if !r.Enhanced {
		return build(h, nil, private)
	}
	return build(h, r.block(r.chooseRTR()), private)
}
