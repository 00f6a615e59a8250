//go:build interop

package interop

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
)

// setting is a parameter of siw with its value.
type setting struct{ name, value string }

// startup is a way to begin a connection, with the expected agreement.
type startup struct {
	name string
	family
	p      rdma.ConnParams // parameters of stag
	siw    []setting
	listen bool // stag is the responder; otherwise it dials
	want   rdma.Conn
}

var (
	siwWantsCRC = setting{"mpa_crc_required", "1"}
	siwBansCRC  = setting{"mpa_crc_strict", "1"}
	siwOld      = setting{"mpa_version", "1"}
	siwRTR      = setting{"peer_to_peer", "1"}
)

// rtr returns the setting for the ready-to-receive messages that siw offers as
// initiator. siw stores the number as it is on the wire, in the byte order of its
// machine.
func rtr(kinds uint16) setting {
	return setting{"rtr_type", strconv.Itoa(int(bits.ReverseBytes16(kinds)))}
}

var startups = []startup{
	{name: "CRC asked by us", p: rdma.ConnParams{NoPeerToPeer: true}, want: rdma.Conn{Revision: 2, CRC: true}},
	// siw's responder does not ask for the CRC that it requires.
	{name: "CRC required by siw only", p: rdma.ConnParams{NoCRC: true, NoPeerToPeer: true}, siw: []setting{siwWantsCRC}, want: rdma.Conn{Revision: 2}},
	{name: "CRC asked by both", p: rdma.ConnParams{NoPeerToPeer: true}, siw: []setting{siwWantsCRC}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "CRC asked by neither", p: rdma.ConnParams{NoCRC: true, NoPeerToPeer: true}, want: rdma.Conn{Revision: 2}},
	{name: "peer-to-peer", want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "depths 1 and 1", p: rdma.ConnParams{IRD: 1, ORD: 1}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "depths 128 and 128", p: rdma.ConnParams{IRD: 128, ORD: 128}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "private data of 252 octets", p: rdma.ConnParams{PrivateData: bytes.Repeat([]byte("stag"), 63)}, want: rdma.Conn{Revision: 2, CRC: true}},
	// siw hands the trailer of the Extensions to rping, which ignores it.
	{name: "extensions offered by us", p: rdma.ConnParams{Extensions: bothExtensions}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "extensions behind private data of 244 octets", p: rdma.ConnParams{Extensions: bothExtensions, PrivateData: bytes.Repeat([]byte("stag"), 61)}, want: rdma.Conn{Revision: 2, CRC: true}},

	{name: "CRC asked by us", listen: true, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "CRC asked by siw", listen: true, p: rdma.ConnParams{NoCRC: true}, siw: []setting{siwWantsCRC}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "CRC asked by both", listen: true, siw: []setting{siwWantsCRC}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "CRC asked by neither", listen: true, p: rdma.ConnParams{NoCRC: true}, want: rdma.Conn{Revision: 2}},
	{name: "revision 1", listen: true, siw: []setting{siwOld}, want: rdma.Conn{Revision: 1, CRC: true}},
	{name: "revision 1, CRC asked by siw", listen: true, p: rdma.ConnParams{NoCRC: true}, siw: []setting{siwOld, siwWantsCRC}, want: rdma.Conn{Revision: 1, CRC: true}},
	{name: "revision 1, no CRC", listen: true, p: rdma.ConnParams{NoCRC: true}, siw: []setting{siwOld}, want: rdma.Conn{Revision: 1}},
	{name: "peer-to-peer, RTR either", listen: true, siw: []setting{siwRTR}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "peer-to-peer, RTR Read", listen: true, siw: []setting{siwRTR, rtr(0x4000)}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "peer-to-peer, RTR Write", listen: true, siw: []setting{siwRTR, rtr(0x8000)}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "extensions wanted by us", listen: true, p: rdma.ConnParams{Extensions: bothExtensions}, want: rdma.Conn{Revision: 2, CRC: true}},
	{name: "private data of 252 octets", listen: true, p: rdma.ConnParams{PrivateData: bytes.Repeat([]byte("stag"), 63)}, want: rdma.Conn{Revision: 2, CRC: true}},
}

const bothExtensions = rdma.ExtAlignedFPDUs | rdma.ExtRFC7306

const startupRounds, startupSize = 20, 10000

// TestStartup makes connections in all ways, and runs rping's exchange on each. The
// exchange has Sends, Reads and Writes. The client compares the octets.
func TestStartup(t *testing.T) {
	for _, s := range startups {
		s.family = ipv4
		s.row(t, s.run)
	}
}

func (s startup) row(t *testing.T, f func(r *rig)) {
	peer, name := "rping -s", "dialled, "
	if s.listen {
		peer, name = "rping -c", "accepted, "
	}
	row(t, name+s.family.name+", "+s.name, about{peer, fmt.Sprintf("%d x %d", startupRounds, startupSize)}, f)
}

func (s startup) run(r *rig) {
	r.Helper()
	for _, v := range s.siw {
		r.siw(v.name, v.value)
	}
	e := r.newEnd(r.adapter(), startupSize)
	if s.listen {
		e.accepted(s)
	} else {
		e.dialled(s)
	}
	e.agreed(s.want.Revision, s.want.CRC)
	if got := e.qp.Conn().Extensions; got != s.want.Extensions {
		e.Errorf("siw agreed to the extensions %#x", got)
	}
}

func (e *end) dialled(s startup) {
	e.Helper()
	server := e.serveInGuest(rpingPort, fmt.Sprintf("rping -s -a %v -S %d", s.guest, startupSize))
	e.Must(e.qp.Dial(e.ctx, netip.AddrPortFrom(s.guest, rpingPort).String(), s.p))
	e.asks(startupRounds)
	e.rpingServed(server)
}

func (e *end) accepted(s startup) {
	e.Helper()
	request, client := e.asked(fmt.Sprintf("rping -c -a %v -C %d -S %d -V", s.our, startupRounds, startupSize))
	if asks := slices.Contains(s.siw, siwRTR); request.Peer().PeerToPeer != asks {
		e.Errorf("the request is %+v, want peer-to-peer %v", request.Peer(), asks)
	}
	e.Must(request.Accept(e.ctx, e.qp, s.p))
	e.serves(startupRounds)
	e.ended(client)
}

// asked starts a client in the guest and returns its connection request.
func (e *end) asked(command string) (*rdma.ConnRequest, *job) {
	e.Helper()
	l, err := e.a.Listen(e.ctx, fmt.Sprint(":", rpingPort), rdma.ListenConfig{})
	e.Must(err)
	e.Cleanup(func() { l.Close() })
	client := e.startInGuest(command)
	request, err := l.Accept(e.ctx)
	e.Must(err)
	return request, client
}

// TestReject rejects rping's request with private data for its application. The private
// data must follow the head of the Reply on the wire.
func TestReject(t *testing.T) {
	for _, revision := range []string{"2", "1"} {
		row(t, "by us, with private data, revision "+revision, about{"rping -c", "1 connection"}, func(r *rig) {
			r.siw("mpa_version", revision)
			e := r.newEnd(r.adapter(), 1)
			request, client := e.asked("rping -c -a " + ourV4)
			private := []byte("not today, said the stag")
			r.Must(request.Reject(private))
			out, code, err := client.end(patience)
			r.Must(err)
			if code == 0 || !strings.Contains(out, "RDMA_CM_EVENT_REJECTED") {
				r.Errorf("rping: exit code %d\n%s", code, out)
			}
			if at := bytes.Index(r.sniffer.pcap(), []byte("MPA ID Rep Frame")); at < 0 {
				r.Error("no Reply in the capture")
			} else if reply, rest, ok := wire.ParseMPA(r.sniffer.pcap()[at:]); !ok || !reply.Flags().Has(wire.MPAReject) || !bytes.Contains(rest[:reply.PrivateLen()], private) {
				r.Errorf("the Reply says %#x, private data %q", reply.Flags(), rest[:reply.PrivateLen()])
			}
		})
	}
}

// TestRejected checks that siw rejects a request with a CRC if its settings forbid the
// CRC. The same QP can connect without a CRC.
func TestRejected(t *testing.T) {
	row(t, "by siw, which refuses CRC; then without", about{"rping -s", fmt.Sprintf("%d x %d", startupRounds, startupSize)}, func(r *rig) {
		r.siw(siwBansCRC.name, siwBansCRC.value)
		server := r.serveInGuest(rpingPort, fmt.Sprintf("rping -s -S %d", startupSize))
		e := r.newEnd(r.adapter(), startupSize)
		address := netip.AddrPortFrom(ipv4.guest, rpingPort).String()
		var no *rdma.RejectedError
		if err := e.qp.Dial(e.ctx, address, rdma.ConnParams{}); !errors.As(err, &no) {
			r.Fatalf("dialled with a CRC: %v, want a rejection", err)
		}
		r.Must(e.qp.Dial(e.ctx, address, rdma.ConnParams{NoCRC: true}))
		e.agreed(2, false)
		e.asks(startupRounds)
		r.rpingServed(server)
	})
}

// TestOldResponder uses revision 1. siw's responder then serves Reads but cannot send
// any. rping's server reads from its client, and therefore fails. The connection and
// the first message must be right.
func TestOldResponder(t *testing.T) {
	row(t, "revision 1, dialled", about{"rping -s", "1 Send, a Read refused"}, func(r *rig) {
		server := r.serveInGuest(rpingPort, "rping -s -d")
		e := r.newEnd(r.adapter(), 64)
		r.Must(e.qp.Dial(e.ctx, netip.AddrPortFrom(ipv4.guest, rpingPort).String(), rdma.ConnParams{Revision: 1, IRD: 1, ORD: 1}))
		e.agreed(1, true)
		e.tell(e.data)
		out, code, err := server.end(patience)
		r.Must(err)
		if !strings.Contains(out, "post send error") {
			r.Errorf("rping: exit code %d\n%s", code, out)
		}
		<-e.qp.Done()
		if err := e.qp.Err(); err != nil {
			r.Errorf("the connection ended by %v, want in good order", err)
		}
	})
}
