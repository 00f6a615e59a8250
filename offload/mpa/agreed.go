package mpa

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/wire"
)

// MaxDepth is the largest read depth. The next value means "not negotiated",
// which is never offered, as Linux siw and Chelsio's driver do not know it.
const MaxDepth = wire.NoDepth - 1

// Offer is what one end wants of a connection. The zero Offer is revision 2,
// with the CRC, without Markers, without RDMA Reads in either direction.
type Offer struct {
	// Revision of the Request: 1 or 2; 0 means 2. A responder's Reply has
	// the Request's.
	Revision uint8

	NoCRC   bool // do without the CRC if the peer does, too
	Markers bool // ask the peer to send Markers

	IRD uint16 // RDMA Reads of the peer's that we serve at a time, 0 to MaxDepth
	ORD uint16 // RDMA Reads of ours under way at a time, 0 to MaxDepth

	// PeerToPeer lets the responder's application send first: the initiator
	// begins with an RTR message, an empty Write, or an empty Read if ORD is
	// not 0. It needs revision 2. A responder does as the Request says.
	PeerToPeer bool

	// Private data for the peer's application: at most 508 octets, with
	// revision 1 at most 512. Some peers take less (siw and cxgb4: 252).
	Private []byte
}

// check returns all complaints.
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

// RTR is the message by which the initiator of a peer-to-peer connection lets
// the responder begin (RFC 6581 §9).
type RTR uint8

const (
	NoRTR    RTR = iota
	RTRWrite     // an empty RDMA Write
	RTRRead      // an empty RDMA Read
	RTRSend      // an empty Send; it takes a receive buffer
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

// Agreed is what a connection begins with.
type Agreed struct {
	Initiator bool // we sent the Request: we send the first FPDU
	Eager     bool // the responder need not wait for it: the application knows that the peer is there
	Revision  uint8
	CRC       bool // in both directions

	SendMarkers    bool // because the peer asked for them
	ReceiveMarkers bool // because we did

	// IRD and ORD are our depths after the negotiation; without an Enhanced
	// block there is none, and they are the Offer's.
	IRD, ORD uint16
	// Enhanced says that the peer has sent its depths. PeerIRD and PeerORD are
	// what it sent, wire.NoDepth included.
	Enhanced         bool
	PeerIRD, PeerORD uint16

	RTR     RTR
	Private []byte // from the peer's application
}
