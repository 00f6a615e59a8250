package mpa

import (
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/wire"
)

// MaxDepth is the largest read depth. The next larger value means "not negotiated".
// This package never offers "not negotiated", because Linux siw and Chelsio's driver do
// not know that value.
const MaxDepth = wire.NoDepth - 1

// Offer holds the parameters that one end offers for a connection. The zero Offer is
// revision 2 with the CRC, without Markers, and without RDMA Reads in either direction.
type Offer struct {
	// Revision is the revision of the Request: 1 or 2. 0 means 2. A responder's Reply
	// has the revision of the Request.
	Revision uint8

	NoCRC   bool // use no CRC if the peer also wants none
	Markers bool // ask the peer to send Markers

	IRD uint16 // incoming RDMA Reads that this end serves at a time, 0 to MaxDepth
	ORD uint16 // RDMA Reads that this end has outstanding at a time, 0 to MaxDepth

	// PeerToPeer lets the responder's application send first. The initiator begins with
	// an RTR message: an empty Write, or an empty Read if ORD is not 0. PeerToPeer
	// needs revision 2. A responder ignores this field and follows the Request.
	PeerToPeer bool

	// Private is private data for the peer's application. Private has at most 508
	// octets, or 512 with revision 1. Extensions take 8 of these octets. Some peers
	// accept less (siw and cxgb4: 252).
	Private []byte

	// Extensions are the extensions of stag that this end wants to use. If there are
	// any, the Request ends in an extension trailer. A peer that is not stag takes the
	// trailer for private data. The Reply has a trailer only if the Request offers
	// something that the responder wants as well. 0 means no trailer.
	Extensions wire.Extensions
}

// check returns an error with every fault of o.
func (o Offer) check() error {
	var complaints []error
	if o.IRD > MaxDepth || o.ORD > MaxDepth {
		complaints = append(complaints, fmt.Errorf("MPA: read depths (IRD %d, ORD %d) go up to %d", o.IRD, o.ORD, MaxDepth))
	}
	if o.Revision > revisionEnhanced {
		complaints = append(complaints, fmt.Errorf("MPA: revision %d cannot be offered: choose 1 or 2", o.Revision))
	}
	if o.Revision == revisionPlain && o.PeerToPeer {
		complaints = append(complaints, errors.New("MPA: revision 1 has no peer-to-peer mode: choose revision 2"))
	}
	return errors.Join(complaints...)
}

// RTR is the first message of the initiator of a peer-to-peer connection. RTR lets the
// responder begin (RFC 6581 §9).
type RTR uint8

const (
	NoRTR    RTR = iota
	RTRWrite     // an empty RDMA Write
	RTRRead      // an empty RDMA Read
	RTRSend      // an empty Send, which takes a receive buffer
)

func (r RTR) String() string {
	switch r {
	case RTRWrite:
		return "RDMA Write"
	case RTRRead:
		return "RDMA Read"
	case RTRSend:
		return "Send"
	}
	return "none"
}

// Agreed holds the parameters that both ends agreed on.
type Agreed struct {
	Initiator bool // this end sent the Request and sends the first FPDU
	RFC7306   bool // both ends speak RFC 7306: they agreed on it, or the application knows that the peer does
	Eager     bool // the responder need not wait for the first FPDU, because the application knows that the peer is ready
	// EagerAfter is how long a responder waits for the first FPDU of a peer that has promised
	// none. 0 means that the responder waits for ever. Code does not code EagerAfter, because
	// the QP measures the time from its first step on.
	EagerAfter time.Duration
	Revision   uint8
	CRC        bool // FPDUs have a CRC, in both directions

	SendMarkers    bool // the peer asked for Markers
	ReceiveMarkers bool // this end asked for Markers

	// IRD and ORD are this end's depths after the negotiation. Without an Enhanced
	// block there is no negotiation, and the depths are those of the Offer.
	IRD, ORD uint16
	// Enhanced is true if the peer has sent its depths. PeerIRD and PeerORD are the
	// depths as the peer sent them, possibly wire.NoDepth.
	Enhanced         bool
	PeerIRD, PeerORD uint16

	RTR        RTR
	Private    []byte          // private data from the peer's application
	Extensions wire.Extensions // extensions that both ends want
}
