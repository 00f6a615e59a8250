package hostile

import (
	"bytes"
	"testing"
	"time"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// badRequest is what a peer does instead of sending a valid Request.
type badRequest struct {
	name  string
	sends []byte
	then  ending
	count rdma.ListenStats // increase of the counters
}

// ending is the peer's last action.
type ending uint8

const (
	waits  ending = iota // waits for an answer
	shuts                // shuts down its direction
	closes               // closes the connection by a FIN
	resets               // resets the connection
)

// A bad request adds one of these to the counters.
var (
	malformed = rdma.ListenStats{Malformed: 1}
	silent    = rdma.ListenStats{Silent: 1}
	gone      = rdma.ListenStats{Gone: 1}
)

func badRequests() []badRequest {
	good := usual.Bytes()
	key := bytes.Clone(good)
	key[15] ^= 1
	claims := func(n int, private []byte) []byte {
		f := rawpeer.Request(rawpeer.CRC, 1, private...)
		f.Claim = n
		return f.Bytes()
	}
	revision := func(n uint8) []byte { return rawpeer.Request(rawpeer.CRC, n).Bytes() }
	enhanced := func(private ...byte) []byte {
		return rawpeer.Request(rawpeer.CRC|rawpeer.Enhanced, 2, private...).Bytes()
	}
	return []badRequest{
		{"wrong key", key, waits, malformed},
		{"a Reply", usualReply.Bytes(), waits, malformed},
		{"another protocol", []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), waits, malformed},
		{"zeros", make([]byte, 64), waits, malformed},
		{"513 octets of private data", claims(513, make([]byte, 513)), waits, malformed},
		{"513 announced", claims(513, nil), waits, malformed},
		{"65535 octets of private data", claims(65535, make([]byte, 65535)), waits, malformed},
		{"65535 announced", claims(65535, nil), waits, malformed},
		{"more announced than sent, shut", claims(100, make([]byte, 99)), shuts, gone},
		{"more announced than sent, silent", claims(100, make([]byte, 99)), waits, silent},
		{"revision 0", revision(0), waits, malformed},
		{"revision 3", revision(3), waits, malformed},
		{"revision 7", revision(7), waits, malformed},
		{"revision 255", revision(255), waits, malformed},
		{"no room for the Enhanced block, 0", enhanced(), waits, malformed},
		{"no room for the Enhanced block, 3", enhanced(0, 4, 0), waits, malformed},
		{"nothing", nil, waits, silent},
		{"19 octets and silence", good[:19], waits, silent},
		{"one octet and silence", good[:1], waits, silent},
		{"nothing, shut", nil, shuts, gone},
		{"nothing, closed", nil, closes, gone},
		{"nothing, reset", nil, resets, gone},
		{"19 octets, shut", good[:19], shuts, gone},
		{"20 octets, closed", good[:20], closes, gone},
		{"20 octets, reset", good[:20], resets, gone},
	}
}

func (c badRequest) run(r *rig) {
	before := r.l.Stats()
	p := r.dial()
	if c.sends != nil {
		p.Octets(c.sends) // the victim may refuse it before it is complete
	}
	switch c.then {
	case shuts:
		r.Must(p.Conn.CloseWrite())
	case closes:
		r.Must(p.Conn.Close())
	case resets:
		r.Must(p.Kill())
	}
	if c.then == waits || c.then == shuts {
		if _, err := p.End(); err != nil {
			r.Error(err)
		}
	}
	want := rdma.ListenStats{
		Requests: before.Requests, Silent: before.Silent + c.count.Silent,
		Malformed: before.Malformed + c.count.Malformed, Gone: before.Gone + c.count.Gone,
		NoPort: before.NoPort, Overflow: before.Overflow,
	}
	r.Eventually("the peer is counted", func() bool { return r.l.Stats() != before })
	if got := r.l.Stats(); got != want {
		r.Errorf("the listener counts %+v, want %+v", got, want)
	}
}

// A peer that does not send a valid Request gets no answer (RFC 5044 §7.1.2), is counted, and delays no other peer.
func TestBadRequests(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range badRequests() {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) {
				c.run(r.with(t))
			})
		}
		r.works()
	})
}

// works makes one more connection and uses it.
func (r *rig) works() {
	r.Helper()
	v := newVictim(r)
	v.accept(usual, usualParams)
	v.echo(1)
	v.closeInOrder()
}

// echo has the victim receive a Send and send one.
func (v *victim) echo(msn uint32) {
	v.Helper()
	v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(msn, []byte("hello")))))
	v.Must(v.recvs.Wait(v.Ctx()))
	v.expect(v.local, int(msn-1)*recvLen, []byte("hello"))
	var got [1]rdma.Completion
	if n := v.recvs.Poll(got[:]); n != 1 || got[0].Status != rdma.Success || got[0].Length != 5 || got[0].ID != uint64(msn) {
		v.Fatalf("the receive completed %d times, with %+v", n, got[0])
	}
	_, err := v.qp.PostSend(rdma.SendWR{ID: 9, Op: rdma.WRSend, Inline: []byte("well")})
	v.Must(err)
	ulpdu, err := v.peer.FPDU()
	v.Must(err)
	if want := rawpeer.Send(1, []byte("well")); !bytes.Equal(ulpdu, want) {
		v.Errorf("the victim sent %x, want %x", ulpdu, want)
	}
}

// closeInOrder closes from the peer's side, after one echo.
func (v *victim) closeInOrder() {
	v.Helper()
	v.Must(v.peer.Conn.CloseWrite())
	end, err := v.peer.End()
	v.Must(err)
	if end != rawpeer.FIN {
		v.Errorf("the victim closes with a %v", end)
	}
	v.peer.Conn.Close()
	v.over()
	if err := v.qp.Err(); err != nil {
		v.Errorf("after a close in good order: %v", err)
	}
	v.completed(nil, []rdma.Status{rdma.Flushed})
	v.intact()
	v.bury()
}

// A silent or slow peer does not keep others from being accepted.
func TestSilenceKeepsNobody(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for range 200 { // more than the backlog
			r.dial()
		}
		r.works()
	})
}

// goodRequest is an unusual but valid Request.
type goodRequest struct {
	name    string
	request rawpeer.Frame
	params  rdma.ConnParams
	reply   rawpeer.Frame
	ird     int // IRD of the victim
	ord     int
	first   []byte // first FPDU of the peer; nil means a Send
	ready   []byte // answer of the victim
}

func goodRequests() []goodRequest {
	all := byte(rawpeer.CRC | rawpeer.Enhanced)
	enhanced := func(ird, ord uint16) []byte { return rawpeer.Block(ird, ord) }
	p2p := func(ird, ord uint16) []byte { return rawpeer.Block(rawpeer.PeerToPeer|ird, ord) }
	depth := func(ird, ord int) rdma.ConnParams {
		return rdma.ConnParams{IRD: ird, ORD: ord}
	}
	readRTR := rawpeer.ReadRequest(1, rawpeer.Read{SinkSTag: 5, SinkTO: 6})
	return []goodRequest{
		{"revision 1", rawpeer.Request(rawpeer.CRC, 1), depth(3, 5), rawpeer.Reply(rawpeer.CRC, 1), 3, 5, nil, nil},
		{"revision 1, flag S means nothing", rawpeer.Request(all, 1, 1, 2), depth(3, 5), rawpeer.Reply(rawpeer.CRC, 1), 3, 5, nil, nil},
		{"revision 2 without block", rawpeer.Request(rawpeer.CRC, 2), depth(3, 5), rawpeer.Reply(rawpeer.CRC, 2), 3, 5, nil, nil},
		{"512 octets of private data", rawpeer.Request(rawpeer.CRC, 1, make([]byte, 512)...), depth(3, 5), rawpeer.Reply(rawpeer.CRC, 1), 3, 5, nil, nil},
		{"reserved bits", rawpeer.Request(rawpeer.CRC|0x0f|rawpeer.Reject, 1), depth(3, 5), rawpeer.Reply(rawpeer.CRC, 1), 3, 5, nil, nil},
		{"no CRC wanted", rawpeer.Request(rawpeer.Enhanced, 2, enhanced(4, 4)...), depth(3, 5), rawpeer.Reply(all, 2, enhanced(3, 4)...), 3, 4, nil, nil},
		{"depth 0", rawpeer.Request(all, 2, enhanced(0, 0)...), depth(3, 5), rawpeer.Reply(all, 2, enhanced(3, 0)...), 3, 0, nil, nil},
		{"depth 0x3fff", rawpeer.Request(all, 2, enhanced(0x3fff, 0x3fff)...), depth(3, 5), rawpeer.Reply(all, 2, enhanced(0x3fff, 0x3fff)...), 3, 5, nil, nil},
		{"all bits of the block", rawpeer.Request(all, 2, rawpeer.Block(0xffff, 0xffff)...), depth(3, 5),
			rawpeer.Reply(all, 2, p2p(0x3fff, rawpeer.RTRWrite|0x3fff)...), 3, 5, rawpeer.Write(1, 0, nil), nil},
		{"depth 0x3ffe", rawpeer.Request(all, 2, enhanced(0x3ffe, 0x3ffe)...), depth(3, 5), rawpeer.Reply(all, 2, enhanced(3, 5)...), 3, 5, nil, nil},
		{"RTR bits without A", rawpeer.Request(all, 2, rawpeer.Block(rawpeer.RTRSend|4, rawpeer.RTRWrite|rawpeer.RTRRead|4)...), depth(3, 5),
			rawpeer.Reply(all, 2, enhanced(3, 4)...), 3, 4, nil, nil},
		{"RTR Write", rawpeer.Request(all, 2, p2p(4, rawpeer.RTRWrite|rawpeer.RTRRead|4)...), depth(3, 5),
			rawpeer.Reply(all, 2, p2p(3, rawpeer.RTRWrite|4)...), 3, 4, rawpeer.Write(1, 0, nil), nil},
		{"peer-to-peer without a first message", rawpeer.Request(all, 2, p2p(4, 4)...), depth(3, 5),
			rawpeer.Reply(all, 2, p2p(3, rawpeer.RTRWrite|4)...), 3, 4, rawpeer.Write(1, 0, nil), nil},
		{"RTR Read", rawpeer.Request(all, 2, p2p(4, rawpeer.RTRRead|4)...), depth(3, 5),
			rawpeer.Reply(all, 2, p2p(3, rawpeer.RTRRead|4)...), 3, 4, readRTR, rawpeer.ReadResponse(5, 6, nil)},
		{"RTR Read where none are served", rawpeer.Request(all, 2, p2p(4, rawpeer.RTRRead|1)...), depth(rdma.NoReads, 5),
			rawpeer.Reply(all, 2, p2p(1, rawpeer.RTRRead|4)...), 1, 4, readRTR, rawpeer.ReadResponse(5, 6, nil)},
		{"RTR Send", rawpeer.Request(all, 2, p2p(rawpeer.RTRSend|4, 4)...), depth(3, 5),
			rawpeer.Reply(all, 2, p2p(rawpeer.RTRSend|3, 4)...), 3, 4, rawpeer.Send(1, nil), nil},
	}
}

func (c goodRequest) run(r *rig) {
	v := newVictim(r)
	reply := v.accept(c.request, c.params)
	if !bytes.Equal(reply.Bytes(), c.reply.Bytes()) {
		v.Errorf("the Reply is %v, want %v", reply, c.reply)
	}
	if got := v.qp.Conn(); got.IRD != c.ird || got.ORD != c.ord || got.Revision != int(c.request.Revision) || !got.CRC || got.Initiator {
		v.Errorf("agreed: %+v", got)
	}
	msn := uint32(1)
	if c.first != nil {
		v.Must(v.peer.Octets(rawpeer.FPDU(c.first)))
		if c.first[rawpeer.AtRDMAP] == 0x43 {
			msn++ // the RTR was a Send, which used no receive
		}
	}
	if c.ready != nil {
		if ulpdu, err := v.peer.FPDU(); err != nil || !bytes.Equal(ulpdu, c.ready) {
			v.Errorf("the answer to the RTR is %x, %v; want %x", ulpdu, err, c.ready)
		}
	}
	v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(msn, nil))))
	v.Must(v.recvs.Wait(v.Ctx()))
	var got [2]rdma.Completion
	if n := v.recvs.Poll(got[:]); n != 1 || got[0].ID != 1 || got[0].Status != rdma.Success {
		v.Errorf("the first receive completed %d times, with %+v", n, got[0])
	}
	v.closeInOrder()
}

func TestGoodRequests(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range goodRequests() {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) { c.run(r.with(t)) })
		}
	})
}

// A Request may arrive octet by octet.
func TestRequestInPieces(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.peer = v.dial()
		v.Must(v.peer.Pieces(usual.Bytes(), 1, 5*time.Millisecond))
		req, err := v.l.Accept(v.Ctx())
		v.Must(err)
		v.Must(req.Accept(v.Ctx(), v.qp, usualParams))
		_, err = v.peer.Frame()
		v.Must(err)
		v.echo(1)
		v.closeInOrder()
	})
}

// A peer that does not wait for the Reply violates the protocol (RFC 5044 §7.1.2): Accept does not return its
// request.
func TestFPDUWithRequest(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		p := r.dial()
		r.Must(p.Octets(append(usual.Bytes(), rawpeer.FPDU(rawpeer.Send(1, []byte("too early")))...)))
		r.Eventually("the Request is read", func() bool { return r.l.Stats().Requests == 1 })
		r.works() // the next one is accepted
		if _, err := p.End(); err != nil {
			r.Error(err)
		}
		if got := r.l.Stats(); got.Malformed != 1 {
			r.Errorf("the listener counts %+v, want one malformed", got)
		}
	})
}

// The same is true if the FPDU arrives before the application has answered.
func TestFPDUBeforeReply(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.peer = v.dial()
		v.Must(v.peer.Octets(usual.Bytes()))
		req, err := v.l.Accept(v.Ctx())
		v.Must(err)
		v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(1, []byte("too early")))))
		time.Sleep(50 * time.Millisecond) // until the FPDU has arrived
		if err := req.Accept(v.Ctx(), v.qp, usualParams); err == nil {
			v.Error("a peer that sent an FPDU before the Reply was accepted")
		}
		if _, err := v.peer.End(); err != nil {
			v.Error(err)
		}
		v.closeUnused()
		r.works()
	})
}

// closeUnused closes a victim that was never connected.
func (v *victim) closeUnused() {
	v.Helper()
	if s := v.qp.State(); s != rdma.Idle {
		v.Errorf("the QP is %v, want idle", s)
	}
	v.Must(v.qp.Close())
	v.completed(nil, flushed)
	v.intact()
	v.bury()
}

// If the peer is gone when the request is accepted, Accept returns an error and leaves nothing behind.
func TestGoneBeforeAccept(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, how := range []ending{closes, resets} {
			v := newVictim(r)
			v.peer = v.dial()
			v.Must(v.peer.Octets(usual.Bytes()))
			req, err := v.l.Accept(v.Ctx())
			v.Must(err)
			if how == closes {
				v.Must(v.peer.Conn.Close())
			} else {
				v.Must(v.peer.Kill())
			}
			time.Sleep(50 * time.Millisecond)
			if err := req.Accept(v.Ctx(), v.qp, usualParams); err == nil {
				v.Error("a peer that is gone was accepted")
			}
			v.closeUnused()
		}
	})
}

// Reject sends its private data to the peer, and takes nothing over.
func TestReject(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		p := r.dial()
		r.Must(p.Octets(usual.Bytes()))
		req, err := r.l.Accept(r.Ctx())
		r.Must(err)
		r.Must(req.Reject([]byte("not today")))
		reply, err := p.Frame()
		r.Must(err)
		want := rawpeer.Reply(rawpeer.CRC|rawpeer.Enhanced|rawpeer.Reject, 2, append(rawpeer.Block(0, 0), "not today"...)...)
		if !bytes.Equal(reply.Bytes(), want.Bytes()) {
			r.Errorf("the Reply is %v, want %v", reply, want)
		}
		if end, err := p.End(); err != nil || end != rawpeer.FIN {
			r.Errorf("behind the Reply: %v, %v; want a FIN", end, err)
		}
	})
}
