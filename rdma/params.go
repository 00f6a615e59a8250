package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/mpa"
)

// NoReads is a value of ConnParams.IRD and ORD. NoReads means no RDMA Reads in this
// direction.
const NoReads = -1

// ConnParams are the parameters of a connection. The zero value works.
type ConnParams struct {
	// PrivateData goes to the peer's application with the Request or the Reply.
	// PrivateData has up to 508 octets, or 512 with revision 1. Some peers take less
	// (Linux siw and Chelsio: 252). Extensions take 8 of these octets.
	PrivateData []byte

	// IRD is how many RDMA Reads of the peer this end serves at a time. ORD is how
	// many RDMA Reads of this end are outstanding at a time. Each is 1 to 128, or NoReads
	// for none. 0 means 32. The two ends agree on the smaller number.
	IRD, ORD int

	// Revision is the revision of MPA: 1 or 2. 0 means 2. Revision 1 does not exchange
	// read depths, so that both ends must know them. (Linux siw as the responder then has
	// no depth to send Reads with.) Only Dial uses Revision. Accept uses the peer's
	// revision.
	Revision int

	// Extensions are the extensions of stag that this end wants to use. An extension is
	// in use if both ends want it; Conn.Extensions says which are. Dial then adds an
	// 8-octet trailer to the private data of the Request, and Accept adds one to that of
	// the Reply if the two ends agree on an extension. PrivateData must leave room for
	// the trailer. A peer that is stag removes the trailer, whether it uses extensions or
	// not. The application of any other peer gets the trailer as the last 8 octets of its
	// private data: set Extensions only if that application ignores such octets. 0 means
	// no trailer.
	Extensions Extensions

	// PeerRFC7306 says that the application knows by other means that the peer speaks RFC
	// 7306, as some RNICs do. Atomic operations and Immediate Data can then be used without
	// ExtRFC7306. A peer that does not know them ends the connection when it gets the first.
	PeerRFC7306 bool

	NoCRC bool // omit the CRC of FPDUs if the peer omits it as well

	// Markers asks the peer to put Markers into its FPDUs. Linux siw and many other peers
	// do not support Markers. Dial returns ErrMarkersRefused then, and the same QP can
	// dial again without Markers. After Accept, Err returns ErrMarkersRefused. With Markers
	// and the CRC, Writes and Read Responses that arrive out of order are placed at once
	// (see ExtAlignedFPDUs).
	Markers bool

	// NoPeerToPeer omits the first message of Dial, which shows the peer that it may send
	// (RFC 6581). Without that message, the peer's first Send waits for a message of this
	// end. Only Dial uses NoPeerToPeer. Accept does as the peer's Request says.
	//
	// The kernel of a Linux siw peer, up to at least 6.1, can fail if a connection with
	// this message is aborted in its first moment. Set NoPeerToPeer in a program that
	// must be able to reset connections at any time.
	NoPeerToPeer bool

	// Eager sends posted requests before the peer has sent its first message, against RFC
	// 5044 §7.1.2. A peer that is not ready yet takes these octets for part of the
	// Reply, and gives up. Use Eager only if the peer waits for a message of this end,
	// and the application learns by other means that the peer is connected before it
	// posts anything. If the peer promises a first message, as Dial does, this end waits
	// for that message in any case. Only Accept uses Eager.
	Eager bool

	// EagerAfter is how long the QP of Accept waits for the first message of a peer that has not
	// promised one. After that time it sends posted requests, against RFC 5044 §7.1.2, as
	// adapters do that do not know this rule. By then most peers are ready. EagerAfter is for
	// programs that were written for InfiniBand, and whose server sends first. 0 means that the
	// QP waits as long as the connection exists. Only Accept uses EagerAfter.
	EagerAfter time.Duration

	// Requested is called when the Request has been sent, before the peer answers. It must
	// not block. Only Dial uses Requested.
	Requested func()

	// Local is the address and the port of this end. If the address is the zero Addr or the
	// port is 0, the kernel chooses it. A host of the other address family is not tried.
	// Only Dial uses Local.
	Local netip.AddrPort

	// TOS is the IPv4 TOS or the IPv6 traffic class of the packets of this end, from the
	// SYN on. Its low two bits must be 0, because they are the ECN bits (RFC 3168 §5). The
	// adapter asks the kernel for the route without regard to the TOS. Only Dial uses TOS.
	// Accepted connections have ListenConfig.TOS.
	TOS uint8

	// Timeout limits the whole call of Dial or Accept. 0 means 10 s.
	Timeout time.Duration

	// PeerTimeout is how long a connection waits for a peer that sends nothing, not even
	// acknowledgements. PeerTimeout applies whether data is in flight or not. PeerTimeout
	// is 3 s or more. 0 means the kernel's settings: usually 2 to 3 minutes of silence,
	// and 15 minutes for data without acknowledgement.
	PeerTimeout time.Duration
}

const (
	defaultDepth   = 32
	defaultTimeout = 10 * time.Second
)

// fill sets the defaults of p, or returns one error with every invalid field in it.
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
	if bad := p.Extensions &^ supported; bad != 0 {
		errs = append(errs, fmt.Errorf("unknown Extensions %#x: choose from %#x", uint32(bad), uint32(supported)))
	}
	if p.Extensions.Has(ExtImmediate) && !p.Extensions.Has(ExtRFC7306) {
		errs = append(errs, errors.New("ExtImmediate without ExtRFC7306: ask for both"))
	}
	if err := adapter.TOS(p.TOS).Check(); err != nil {
		errs = append(errs, err)
	}
	if p.Timeout < 0 {
		errs = append(errs, fmt.Errorf("a Timeout of %v: choose 0 or more", p.Timeout))
	}
	if p.EagerAfter < 0 {
		errs = append(errs, fmt.Errorf("an EagerAfter of %v: choose 0 or more", p.EagerAfter))
	}
	if p.PeerTimeout != 0 && p.PeerTimeout < adapter.LeastPatience {
		errs = append(errs, fmt.Errorf("a PeerTimeout of %v: choose %v or more", p.PeerTimeout, adapter.LeastPatience))
	}
	if p.Timeout == 0 {
		p.Timeout = defaultTimeout
	}
	return p, errors.Join(errs...)
}

// fillAccept is fill for Accept, which cannot change the addresses and the TOS of a
// connection.
func (p ConnParams) fillAccept() (ConnParams, error) {
	if p.Local != (netip.AddrPort{}) || p.TOS != 0 {
		return p, errors.New("the fields Local and TOS are for Dial: leave them out, and give Listen its address and TOS")
	}
	return p.fill()
}

// complete adds to a what the negotiation does not contain.
func (p ConnParams) complete(a mpa.Agreed) mpa.Agreed {
	if !a.Initiator {
		a.Eager, a.EagerAfter = p.Eager, p.EagerAfter
	}
	a.RFC7306 = p.PeerRFC7306 || a.Extensions.Has(ExtRFC7306)
	return a
}

// offerOn is offer for a connection over s.
func (p ConnParams) offerOn(s *adapter.Socket) mpa.Offer {
	p.Extensions &^= unfit(s.Offloaded())
	return p.offer()
}

// offer returns the Offer of MPA for p. fill must have been called.
func (p ConnParams) offer() mpa.Offer {
	return mpa.Offer{
		Revision: uint8(p.Revision), NoCRC: p.NoCRC, Markers: p.Markers,
		IRD: uint16(p.IRD), ORD: uint16(p.ORD),
		PeerToPeer: !p.NoPeerToPeer && p.Revision != 1, Private: p.PrivateData, Extensions: p.Extensions,
	}
}
