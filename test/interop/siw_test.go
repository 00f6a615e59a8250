//go:build interop

package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// fault is a fault on a connection that rping has requested, with the expected
// Terminate. stag is rping's server and has rping's first message. The message says
// where rping has how many octets, and under which key.
type fault struct {
	name    string
	toGuest spoiler // changes the frames that stag sends
	toUs    spoiler // changes the frames that siw sends
	siw     []setting
	do      func(e *end, addr uint64, key rdma.STag, n int) []rdma.SendWR
	want    rdma.TerminateCode
}

// These are offsets in an FPDU.
const (
	atDDP   = 2
	atRDMAP = 3
	atQueue = 11 // in an untagged FPDU: the last octet of each field
	atMSN   = 15
	atMO    = 19
)

// goAhead returns one message, as the server must send it.
func goAhead(*end, uint64, rdma.STag, int) []rdma.SendWR {
	return []rdma.SendWR{{Op: rdma.WRSend, Inline: make([]byte, infoLen)}}
}

// writes returns an RDMA Write of 64 octets that is off octets after the right place.
func writes(off int, wrongKey rdma.STag) func(*end, uint64, rdma.STag, int) []rdma.SendWR {
	return func(e *end, addr uint64, key rdma.STag, n int) []rdma.SendWR {
		return []rdma.SendWR{{Op: rdma.WRWrite, SGL: []rdma.SGE{e.back.SGE(0, 64)}, RKey: key ^ wrongKey, RemoteAddr: addr + uint64(off)}}
	}
}

func reads(off int, wrongKey rdma.STag) func(*end, uint64, rdma.STag, int) []rdma.SendWR {
	return func(e *end, addr uint64, key rdma.STag, n int) []rdma.SendWR {
		return []rdma.SendWR{{Op: rdma.WRRead, SGL: []rdma.SGE{e.back.SGE(0, 64)}, RKey: key ^ wrongKey, RemoteAddr: addr + uint64(off)}}
	}
}

// siwFaults are the faults that siw detects. If siw's code differs from that of RFC
// 5040, the test expects siw's code. siw also reports "no buffer" if the message is
// longer than the buffer.
var siwFaults = []fault{
	{name: "bad CRC", toGuest: badCRC(1), do: goAhead, want: rdma.TerminateCode{Layer: 2, Code: 2}},
	{name: "Write, unknown STag", do: writes(0, 1<<20), want: rdma.TerminateCode{Layer: 1, Type: 1, Code: 0}},
	{name: "Write, out of bounds", do: writes(64, 0), want: rdma.TerminateCode{Layer: 1, Type: 1, Code: 1}},
	{name: "Read, unknown STag", do: reads(0, 1<<20), want: rdma.TerminateCode{Layer: 0, Type: 1, Code: 0}},
	{name: "Read, out of bounds", do: reads(1, 0), want: rdma.TerminateCode{Layer: 0, Type: 1, Code: 1}},
	{name: "Read Response nobody asked for", toGuest: setOctet(1, atRDMAP, 0x42), do: writes(0, 0), want: rdma.TerminateCode{Layer: 1, Type: 0, Code: 0}},
	{name: "bad MSN", toGuest: setOctet(1, atMSN, 2), do: goAhead, want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 3}},
	{name: "bad queue", toGuest: setOctet(1, atQueue, 5), do: goAhead, want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 1}},
	{name: "bad offset", toGuest: setOctet(1, atMO, 4), do: goAhead, want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 4}},
	{name: "bad opcode", toGuest: setOctet(1, atRDMAP, 0x4e), do: goAhead, want: rdma.TerminateCode{Layer: 0, Type: 2, Code: 6}},
	{name: "bad RDMAP version", toGuest: setOctet(1, atRDMAP, 0x83), do: goAhead, want: rdma.TerminateCode{Layer: 0, Type: 2, Code: 5}},
	{name: "bad DDP version", toGuest: setOctet(1, atDDP, 0x42), do: goAhead, want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 6}},
	{name: "Sends without a receive", do: func(e *end, addr uint64, key rdma.STag, n int) []rdma.SendWR {
		return slices.Repeat(goAhead(e, addr, key, n), 6)
	}, want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 2}},
	{name: "Send longer than the receive", do: func(e *end, _ uint64, _ rdma.STag, _ int) []rdma.SendWR {
		return []rdma.SendWR{{Op: rdma.WRSend, Inline: make([]byte, infoLen+1)}}
	}, want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 2}},
	{name: "Send with Invalidate of an unknown STag", do: func(e *end, _ uint64, key rdma.STag, _ int) []rdma.SendWR {
		return []rdma.SendWR{{Op: rdma.WRSendInvalidate, Inline: make([]byte, infoLen), Invalidate: key ^ 1<<20}}
	}, want: rdma.TerminateCode{Layer: 0, Type: 2, Code: 9}},
	{name: "a Reply that wants more Reads than siw serves", toGuest: func(n int, frame []byte) {
		if n == 0 {
			binary.BigEndian.PutUint16(frame[22:], 200)
		}
	}, want: rdma.TerminateCode{Layer: 2, Code: 6}},
	{name: "a Reply without a ready-to-receive message", siw: []setting{siwRTR}, toGuest: func(n int, frame []byte) {
		if n == 0 {
			frame[22] &^= 0xc0
		}
	}, want: rdma.TerminateCode{Layer: 2, Code: 7}},
	{name: "no Reply", toGuest: func(n int, frame []byte) {
		if n == 0 {
			frame[9] = 'q' // changes a Request
		}
	}, want: rdma.TerminateCode{Layer: 2, Code: 4}},
}

// ourFaults are the faults that stag detects.
var ourFaults = []fault{
	{name: "bad CRC", toUs: badCRC(1), want: rdma.TerminateCode{Layer: 2, Code: 2}},
	{name: "Write, unknown STag", toUs: func(n int, frame []byte) {
		if n == 1 {
			frame[atDDP], frame[atRDMAP] = 0xc1, 0x40
			sum(frame)
		}
	}, want: rdma.TerminateCode{Layer: 1, Type: 1, Code: 0}},
	{name: "bad MSN", toUs: setOctet(1, atMSN, 2), want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 3}},
	{name: "bad queue", toUs: setOctet(1, atQueue, 5), want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 1}},
	{name: "bad offset", toUs: setOctet(1, atMO, 4), want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 4}},
	{name: "bad opcode", toUs: setOctet(1, atRDMAP, 0x4e), want: rdma.TerminateCode{Layer: 0, Type: 2, Code: 6}},
	{name: "bad RDMAP version", toUs: setOctet(1, atRDMAP, 0x83), want: rdma.TerminateCode{Layer: 0, Type: 2, Code: 5}},
	{name: "bad DDP version", toUs: setOctet(1, atDDP, 0x42), want: rdma.TerminateCode{Layer: 1, Type: 2, Code: 6}},
}

// provoked lets rping connect, through a relay if frames must be changed, and returns
// stag's error. siw resets the connection if it has not read everything. The kernel of
// the relay then drops a Terminate in front of the reset.
func (f fault) provoked(r *rig) *rdma.QPError {
	r.Helper()
	for _, s := range f.siw {
		r.siw(s.name, s.value)
	}
	e := r.newEnd(r.adapter(), 64)
	host, port := ourV4, fmt.Sprint(rpingPort)
	if f.toUs != nil || f.toGuest != nil {
		host, port = relayV4, r.relay(f.toUs, f.toGuest).port
	}
	request, _ := e.asked(fmt.Sprintf("rping -c -a %s -p %s -C 1", host, port))
	r.Must(request.Accept(e.ctx, e.qp, rdma.ConnParams{}))
	if f.do != nil {
		addr, key, n := e.hear()
		_, err := e.qp.PostSend(f.do(e, addr, key, n)...)
		r.Must(err)
	}
	select {
	case <-e.qp.Done():
	case <-e.ctx.Done():
		r.Fatalf("the connection goes on: %v", e.qp.State())
	}
	var got *rdma.QPError
	if err := e.qp.Err(); !errors.As(err, &got) {
		r.Fatalf("the connection has ended by %v, want %v", err, f.want)
	}
	return got
}

// TestTerminatesOfSiw checks that stag understands siw's Terminates, with siw's order
// of bits.
func TestTerminatesOfSiw(t *testing.T) {
	for _, f := range siwFaults {
		row(t, f.name, about{"rping -c", "1 Terminate from siw"}, func(r *rig) {
			if got := f.provoked(r); got.Code != f.want || !got.Remote || !got.Swapped {
				r.Errorf("%v, want %v from the peer, in siw's bit order", got, f.want)
			}
		})
	}
}

// TestTerminatesOfOurs checks that siw recognizes stag's Terminate and ends the
// connection. siw exchanges layer and type.
func TestTerminatesOfOurs(t *testing.T) {
	for _, f := range ourFaults {
		row(t, f.name, about{"rping -c", "1 Terminate to siw"}, func(r *rig) {
			if got := f.provoked(r); got.Code != f.want || got.Remote {
				r.Errorf("%v, want %v by this side", got, f.want)
			}
			want := fmt.Sprintf("got TERMINATE. layer %d, type %d, code %d", f.want.Type, f.want.Layer, f.want.Code)
			for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
				said := r.inGuest("dmesg")
				if strings.Contains(said, want) {
					return
				}
				if time.Now().After(end) {
					r.Fatalf("siw does not say %q:\n%s", want, said)
				}
			}
		})
	}
}

// kernelPort opens an adapter over the kernel's TCP. No connection is taken over, and
// stag's first FPDU follows the Reply sooner.
func (r *rig) kernelPort() (a *rdma.Adapter) {
	r.Helper()
	r.Must(r.pair.Do(pair.A, func() (err error) {
		a, err = rdma.Open(rdma.Config{KernelPort: true})
		return err
	}))
	r.Cleanup(func() {
		if err := a.Close(); err != nil {
			r.Errorf("close the adapter: %v", err)
		}
	})
	return a
}

const raceRounds = 200

// TestAcceptRace checks that no connection stalls because siw misses FPDUs that follow
// its Reply at once. A busy machine may delay the guest by a second now and then, but
// not in three rows of connections.
func TestAcceptRace(t *testing.T) {
	for _, p := range []struct {
		name    string
		adapter func(*rig) *rdma.Adapter
		params  rdma.ConnParams
	}{
		{"offloaded", (*rig).adapter, rdma.ConnParams{IRD: 1, ORD: 1, NoPeerToPeer: true}},
		{"kernel port", (*rig).kernelPort, rdma.ConnParams{IRD: 1, ORD: 1, NoPeerToPeer: true}},
		{"kernel port, peer-to-peer", (*rig).kernelPort, rdma.ConnParams{IRD: 1, ORD: 1}},
	} {
		row(t, p.name, about{"rping -s -P", fmt.Sprintf("%d connections", raceRounds)}, func(r *rig) {
			r.serveInGuest(rpingPort, "rping -s -P")
			a := p.adapter(r)
			for range 3 {
				took := r.race(a, p.params)
				r.Logf("the first answer took %v, %v in the middle, %v at most", took[0], took[raceRounds/2], took[raceRounds-1])
				if took[raceRounds-1] <= time.Second {
					return
				}
			}
			r.Error("the first answer took more than 1 s in each of three rows")
		})
	}
}

// race returns how long the first answer took on each of many connections, sorted.
func (r *rig) race(a *rdma.Adapter, p rdma.ConnParams) (took []time.Duration) {
	r.Helper()
	for range raceRounds {
		e := r.newEnd(a, 64)
		r.Must(e.qp.Dial(e.ctx, netip.AddrPortFrom(ipv4.guest, rpingPort).String(), p))
		begun := time.Now()
		e.tell(e.data)
		e.hear()
		took = append(took, time.Since(begun))
		r.Must(e.qp.Disconnect(e.ctx))
	}
	slices.Sort(took)
	return took
}

// TestCloseAtOnce closes a connection early. If the FIN arrives before siw has
// installed its callbacks, the guest's kernel crashes. stag therefore delays the FIN.
func TestCloseAtOnce(t *testing.T) {
	const rounds = 20
	row(t, "kernel port, peer-to-peer", about{"rping -s -P", fmt.Sprintf("%d connections", rounds)}, func(r *rig) {
		r.serveInGuest(rpingPort, "rping -s -P")
		a := r.kernelPort()
		for range rounds {
			e := r.newEnd(a, 64)
			r.Must(e.qp.Dial(e.ctx, netip.AddrPortFrom(ipv4.guest, rpingPort).String(), rdma.ConnParams{}))
			r.Must(e.qp.Disconnect(e.ctx))
		}
		if said := r.inGuest("dmesg"); strings.Contains(said, "BUG") {
			r.Errorf("the guest's kernel says:\n%s", said)
			r.guest.kill()
		}
	})
}

// TestMarkersRefused checks the error of a connection that asks for Markers, which siw
// does not support. The same QP can connect without Markers.
func TestMarkersRefused(t *testing.T) {
	row(t, "dialled; then without", about{"rping -s", fmt.Sprintf("%d x %d", startupRounds, startupSize)}, func(r *rig) {
		server := r.serveInGuest(rpingPort, fmt.Sprintf("rping -s -S %d", startupSize))
		e := r.newEnd(r.adapter(), startupSize)
		address := netip.AddrPortFrom(ipv4.guest, rpingPort).String()
		p := rdma.ConnParams{Markers: true}
		var no *rdma.RejectedError
		if err := e.qp.Dial(e.ctx, address, p); !errors.Is(err, rdma.ErrMarkersRefused) || !errors.As(err, &no) {
			r.Fatalf("dialled for Markers: %v, want %v", err, rdma.ErrMarkersRefused)
		}
		p.Markers = false
		r.Must(e.qp.Dial(e.ctx, address, p))
		e.asks(startupRounds)
		r.rpingServed(server)
	})
	row(t, "accepted", about{"rping -c", "1 connection"}, func(r *rig) {
		e := r.newEnd(r.adapter(), 64)
		request, client := e.asked("rping -c -a " + ourV4)
		r.Must(request.Accept(e.ctx, e.qp, rdma.ConnParams{Markers: true}))
		<-e.qp.Done()
		if err := e.qp.Err(); !errors.Is(err, rdma.ErrMarkersRefused) {
			r.Errorf("the connection has ended by %v, want %v", err, rdma.ErrMarkersRefused)
		}
		out, code, err := client.end(patience)
		r.Must(err)
		if code == 0 || !strings.Contains(out, "RDMA_CM_EVENT_REJECTED") {
			r.Errorf("rping: exit code %d\n%s", code, out)
		}
	})
}

// TestHastyServer checks that work requests that a server posts early wait. siw's
// initiator resets the connection if an FPDU arrives before its own first FPDU.
func TestHastyServer(t *testing.T) {
	const rounds = 10
	row(t, "accepted", about{"rping -c", fmt.Sprintf("%d connections", rounds)}, func(r *rig) {
		a := r.adapter()
		l, err := a.Listen(r.context(), fmt.Sprint(":", rpingPort), rdma.ListenConfig{})
		r.Must(err)
		defer l.Close()
		for range rounds {
			e := r.newEnd(a, 64)
			client := r.startInGuest("rping -c -C 1 -V -a " + ourV4)
			request, err := l.Accept(e.ctx)
			r.Must(err)
			r.Must(request.Accept(e.ctx, e.qp, rdma.ConnParams{}))
			_, err = e.qp.PostSend(rdma.SendWR{Op: rdma.WRWrite})
			r.Must(err)
			e.serves(1)
			r.ended(client)
		}
	})
}
