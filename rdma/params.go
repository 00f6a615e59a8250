package rdma

import (
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/mpa"
)

// NoReads is for ConnParams.IRD and ORD: none at all.
const NoReads = -1

// ConnParams say how a connection is made. The zero value works.
type ConnParams struct {
	// PrivateData goes to the peer's application with the Request or the
	// Reply: up to 508 octets, 512 with revision 1. Some peers take less
	// (Linux siw and Chelsio: 252).
	PrivateData []byte

	// IRD is how many RDMA Reads of the peer's are served at a time, ORD how
	// many of ours are under way at a time: 1 to 128, NoReads for none; 0
	// means 32. The two ends settle for the smaller number.
	IRD, ORD int

	// Revision of MPA: 1 or 2; 0 means 2. Revision 1 settles no read depths:
	// both ends must know them. (Linux siw as the responder then has none to send
	// Reads with.) Dial only; Accept takes the peer's.
	Revision int

	NoCRC bool // do without the CRC of FPDUs if the peer does as well

	// Markers have the peer put Markers into what it sends. Linux siw, and other
	// peers as they come, have none: the error is ErrMarkersRefused then, and the
	// same QP can dial again without.
	Markers bool

	// NoPeerToPeer leaves out the message by which Dial shows the peer that it
	// may send (RFC 6581): its first Send has to wait for one of ours. Dial
	// only; Accept does as the peer says. The kernel of a Linux siw, up to at
	// least 6.1, can fail when a connection with this message is aborted in the
	// first moment; what has to reset connections at any time leaves it out.
	NoPeerToPeer bool

	// Eager lets what is posted leave before the peer has begun, against RFC
	// 5044 §7.1.2: a peer that is not ready yet takes it for part of the Reply,
	// and gives up. It is for applications that learn by other means that the
	// peer is connected, before they post anything, and whose peer waits for
	// them. Who promises to begin, as Dial does, is waited for all the same.
	// Accept only.
	Eager bool

	// Timeout is for all of it. 0 means 10 s.
	Timeout time.Duration

	// PeerTimeout is how long a connection waits for a peer of which nothing is
	// heard, whether anything is under way to it or not, 3 s or more. 0 means
	// what the kernel is set to: as a rule 2 to 3 minutes of silence, 15 minutes
	// for data without acknowledgement.
	PeerTimeout time.Duration
}

const (
	defaultDepth   = 32
	defaultTimeout = 10 * time.Second
)

// fill completes p, or says everything that is wrong with it.
func (p ConnParams) fill() (ConnParams, error) {
	var errs []error
	for _, d := range []struct {
		name  string
		value *int
	}{{"IRD", &p.IRD}, {"ORD", &p.ORD}} {
		switch *d.value {
		case 0:
			*d.value = defaultDepth
		case NoReads:
			*d.value = 0
		default:
			if *d.value < 0 || *d.value > maxReadDepth {
				errs = append(errs, fmt.Errorf("%s is %d: choose 1 to %d, or NoReads", d.name, *d.value, maxReadDepth))
				*d.value = 0
			}
		}
	}
	if p.Revision < 0 || p.Revision > 2 {
		errs = append(errs, fmt.Errorf("MPA revision %d: choose 1 or 2", p.Revision))
	}
	if p.Timeout < 0 {
		errs = append(errs, fmt.Errorf("a Timeout of %v: choose 0 or more", p.Timeout))
	}
	if p.PeerTimeout != 0 && p.PeerTimeout < adapter.LeastPatience {
		errs = append(errs, fmt.Errorf("a PeerTimeout of %v: choose %v or more", p.PeerTimeout, adapter.LeastPatience))
	}
	if p.Timeout == 0 {
		p.Timeout = defaultTimeout
	}
	return p, errors.Join(errs...)
}

// offer is p, filled, in MPA's words.
func (p ConnParams) offer() mpa.Offer {
	return mpa.Offer{
		Revision: uint8(p.Revision), NoCRC: p.NoCRC, Markers: p.Markers,
		IRD: uint16(p.IRD), ORD: uint16(p.ORD),
		PeerToPeer: !p.NoPeerToPeer && p.Revision != 1, Private: p.PrivateData,
	}
}
