package hostile

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// badReply is what a peer sends instead of a valid Reply.
type badReply struct {
	name      string
	p2p       bool // the Request offers RTR messages
	old       bool // the Request is of revision 1
	sends     []byte
	then      ending
	is        func(error) bool // checks Dial's error; nil accepts any
	terminate string           // the Terminate that the peer gets before the end
}

func isFrameError(err error) bool {
	var e *mpa.FrameError
	return errors.As(err, &e)
}

func isMismatch(code uint8) func(error) bool {
	return func(err error) bool {
		var e *mpa.Mismatch
		return errors.As(err, &e) && e.Code == code
	}
}

func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

func badReplies() []badReply {
	good := usualReply.Bytes()
	key := bytes.Clone(good)
	key[0] ^= 1
	all := byte(rawpeer.CRC | rawpeer.Enhanced)
	reply := func(flags, revision uint8, private ...byte) []byte {
		return rawpeer.Reply(flags, revision, private...).Bytes()
	}
	block := func(ird, ord uint16) []byte { return reply(all, 2, rawpeer.Block(ird, ord)...) }
	claims := func(n int, private []byte) []byte {
		f := rawpeer.Reply(rawpeer.CRC, 2, private...)
		f.Claim = n
		return f.Bytes()
	}
	frame, p2p := isFrameError, uint16(rawpeer.PeerToPeer)
	return []badReply{
		{name: "wrong key", sends: key, is: frame},
		{name: "a Request", sends: usual.Bytes(), is: frame},
		{name: "another protocol", sends: []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), is: frame},
		{name: "513 octets of private data", sends: claims(513, make([]byte, 513)), is: frame},
		{name: "65535 announced", sends: claims(65535, nil), is: frame},
		{name: "65535 octets of private data", sends: claims(65535, make([]byte, 65535)), is: frame},
		{name: "more announced than sent, closed", sends: claims(100, make([]byte, 99)), then: closes},
		{name: "more announced than sent, silent", sends: claims(100, make([]byte, 99)), is: isTimeout},
		{name: "revision 0", sends: reply(all, 0, rawpeer.Block(4, 4)...), is: frame},
		{name: "revision 1", sends: reply(rawpeer.CRC, 1), is: frame},
		{name: "revision 3", sends: reply(all, 3, rawpeer.Block(4, 4)...), is: frame},
		{name: "revision 2 to revision 1", old: true, sends: good, is: frame},
		{name: "revision 2 without a block to revision 1", old: true, sends: reply(rawpeer.CRC, 2), is: frame},
		{name: "revision 0 to revision 1", old: true, sends: reply(rawpeer.CRC, 0), is: frame},
		{name: "all bits of the block, peer-to-peer unasked", sends: block(0xffff, 0xffff), is: isMismatch(mpa.CodeNoRTR), terminate: "2/0/07"},
		{name: "no Enhanced block", sends: reply(rawpeer.CRC, 2), is: frame},
		{name: "no room for the Enhanced block", sends: reply(all, 2, 0, 4, 0), is: frame},
		{name: "more Reads than we serve", sends: block(4, 5), is: isMismatch(mpa.CodeInsufficientIRD), terminate: "2/0/06"},
		{name: "peer-to-peer unasked", sends: block(p2p|4, rawpeer.RTRWrite|4), is: isMismatch(mpa.CodeNoRTR), terminate: "2/0/07"},
		{name: "no peer-to-peer", p2p: true, sends: block(4, 4), is: isMismatch(mpa.CodeNoRTR), terminate: "2/0/07"},
		{name: "no RTR message", p2p: true, sends: block(p2p|4, 4), is: isMismatch(mpa.CodeNoRTR), terminate: "2/0/07"},
		{name: "an RTR message that was not offered", p2p: true, sends: block(p2p|rawpeer.RTRSend|4, 4), is: isMismatch(mpa.CodeNoRTR), terminate: "2/0/07"},
		{name: "RTR Read, but none served", p2p: true, sends: block(p2p, rawpeer.RTRRead|4), is: isMismatch(mpa.CodeInsufficientIRD), terminate: "2/0/06"},
		{name: "silence", is: isTimeout},
		{name: "one octet and silence", sends: good[:1], is: isTimeout},
		{name: "nothing, closed", then: closes},
		{name: "nothing, reset", then: resets},
		{name: "19 octets, closed", sends: good[:19], then: closes},
		{name: "23 octets, closed", sends: good[:23], then: closes},
		{name: "23 octets, reset", sends: good[:23], then: resets},
	}
}

func (c badReply) run(r *rig) {
	v := newVictim(r)
	params := usualParams
	params.NoPeerToPeer, params.Timeout = !c.p2p, silence
	if c.old {
		params.Revision = 1
	}
	_, err := v.call(params, func(rawpeer.Frame) []byte {
		if c.sends != nil {
			v.peer.Octets(c.sends)
		}
		switch c.then {
		case closes:
			v.Must(v.peer.Conn.Close())
		case resets:
			v.Must(v.peer.Kill())
		}
		return nil
	})
	if err == nil || c.is != nil && !c.is(err) {
		v.Errorf("Dial returns %v", err)
	}
	c.ended(v)
	// The QP is unchanged, and can be connected again.
	if _, err := v.call(usualParams, replies(usualReply.Bytes())); err != nil {
		v.Fatal(err)
	}
	v.closeCalled()
}

// ended demands that the peer got what it must, and then the end of the stream.
func (c badReply) ended(v *victim) {
	v.Helper()
	switch {
	case c.then != waits:
	case c.terminate != "":
		t, err := v.peer.Terminated()
		v.Must(err)
		if t.String() != c.terminate || t.Header != nil || t.Request != nil {
			v.Errorf("the Terminate is %v, %+v; want %s", t, t, c.terminate)
		}
	default:
		if _, err := v.peer.End(); err != nil {
			v.Error(err)
		}
	}
}

// closeCalled lets the victim send something, which an initiator may do, and closes.
func (v *victim) closeCalled() {
	v.Helper()
	_, err := v.qp.PostSend(rdma.SendWR{ID: 3, Op: rdma.WRSend, Inline: []byte("hello"), Flags: rdma.Signaled})
	v.Must(err)
	if ulpdu, err := v.peer.FPDU(); err != nil || !bytes.Equal(ulpdu, rawpeer.Send(1, []byte("hello"))) {
		v.Errorf("the first FPDU is %x, %v", ulpdu, err)
	}
	v.Must(v.peer.Conn.CloseWrite())
	if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
		v.Errorf("the end is %v, %v; want a FIN", end, err)
	}
	v.peer.Conn.Close()
	v.over()
	if err := v.qp.Err(); err != nil {
		v.Error(err)
	}
	v.completed([]rdma.Status{rdma.Success}, flushed)
	v.intact()
	v.bury()
}

// A peer without a valid Reply makes Dial fail with an error that gives the reason. The QP can still be used.
func TestBadReplies(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range badReplies() {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) { c.run(r.with(t)) })
		}
	})
}

func TestRejected(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		private := append(rawpeer.Block(7, 9), "go away"...)
		_, err := v.call(usualParams, replies(rawpeer.Reply(rawpeer.Enhanced|rawpeer.Reject, 2, private...).Bytes()))
		var e *rdma.RejectedError
		if !errors.As(err, &e) || string(e.PrivateData) != "go away" || e.IRD != 7 || e.ORD != 9 {
			v.Errorf("Dial returns %v, %+v", err, e)
		}
		if _, err := v.peer.End(); err != nil {
			v.Error(err)
		}
		v.closeUnused()
	})
}

// A peer that has no Markers, and rejects a request for them, as Linux siw does, can be dialled without Markers by
// the same QP.
func TestMarkersRefused(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		p := usualParams
		p.Markers = true
		_, err := v.call(p, func(request rawpeer.Frame) []byte {
			if request.Flags&rawpeer.Markers == 0 {
				v.Errorf("%v asks for no Markers", request)
			}
			refusal := rawpeer.Reply(request.Flags&^rawpeer.Markers|rawpeer.Reject, 2, rawpeer.Block(0, 0)...)
			v.Must(v.peer.Octets(refusal.Bytes()))
			v.Must(v.peer.Conn.CloseWrite())
			return nil
		})
		var e *rdma.RejectedError
		if !errors.Is(err, rdma.ErrMarkersRefused) || !errors.As(err, &e) {
			v.Errorf("Dial returns %v", err)
		}
		p.Markers = false
		_, err = v.call(p, replies(usualReply.Bytes()))
		v.Must(err)
		v.closeCalled()
	})
}

// An initiator that does not accept the victim's Reply closes without a reason.
func TestReplyRefused(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		markers := usualParams
		markers.Markers = true
		p2p := rawpeer.Request(rawpeer.CRC|rawpeer.Enhanced, 2, rawpeer.Block(rawpeer.PeerToPeer|4, rawpeer.RTRWrite|4)...)
		for _, c := range []struct {
			name    string
			request rawpeer.Frame
			p       rdma.ConnParams
			want    error
		}{
			{"Markers", usual, markers, rdma.ErrMarkersRefused},
			{"RTR", p2p, usualParams, rdmap.ErrReplyRefused},
		} {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) {
				v := newVictim(r.with(t))
				v.accept(c.request, c.p)
				v.Must(v.peer.Conn.CloseWrite())
				v.over()
				v.lost(c.want)
				v.completed(nil, flushed)
				v.intact()
				v.bury()
			})
		}
	})
}

// goodReply is an unusual but valid Reply.
type goodReply struct {
	name   string
	params rdma.ConnParams
	sends  rawpeer.Frame
	ird    int // IRD in force
	ord    int
	first  []byte // first message of the victim, sent by itself
}

func goodReplies() []goodReply {
	all := byte(rawpeer.CRC | rawpeer.Enhanced)
	plain := rdma.ConnParams{IRD: 4, ORD: 6, NoPeerToPeer: true}
	both := rdma.ConnParams{IRD: 4, ORD: 6}
	old := rdma.ConnParams{IRD: 4, ORD: 6, Revision: 1}
	p2p := uint16(rawpeer.PeerToPeer)
	block := func(ird, ord uint16) rawpeer.Frame { return rawpeer.Reply(all, 2, rawpeer.Block(ird, ord)...) }
	rtrRead := rawpeer.ReadRequest(1, rawpeer.Read{})
	return []goodReply{
		{"depths as asked", plain, block(6, 4), 4, 6, nil},
		{"fewer", plain, block(2, 1), 4, 2, nil},
		{"none", plain, block(0, 0), 4, 0, nil},
		{"0x3fff", plain, block(0x3fff, 0x3fff), 4, 6, nil},
		{"all bits of the block", both, block(0xffff, 0xffff), 4, 6, rawpeer.Write(0, 0, nil)},
		{"private data", plain, rawpeer.Reply(all, 2, append(rawpeer.Block(6, 4), make([]byte, 508)...)...), 4, 6, nil},
		{"reserved bits", plain, rawpeer.Reply(all|0xf, 2, rawpeer.Block(6, 4)...), 4, 6, nil},
		{"revision 1", old, rawpeer.Reply(rawpeer.CRC, 1), 4, 6, nil},
		{"RTR Write", both, block(p2p|6, rawpeer.RTRWrite|4), 4, 6, rawpeer.Write(0, 0, nil)},
		{"RTR Read", both, block(p2p|6, rawpeer.RTRRead|4), 4, 6, rtrRead},
		{"RTR, several", both, block(p2p|rawpeer.RTRSend|6, rawpeer.RTRWrite|rawpeer.RTRRead|4), 4, 6, rawpeer.Write(0, 0, nil)},
	}
}

func (c goodReply) run(r *rig) {
	v := newVictim(r)
	_, err := v.call(c.params, replies(c.sends.Bytes()))
	v.Must(err)
	if got := v.qp.Conn(); got.IRD != c.ird || got.ORD != c.ord || !got.CRC || !got.Initiator {
		v.Errorf("agreed: %+v", got)
	}
	if c.first != nil {
		if ulpdu, err := v.peer.FPDU(); err != nil || !bytes.Equal(ulpdu, c.first) {
			v.Errorf("the first FPDU is %x, %v; want %x", ulpdu, err, c.first)
		}
	}
	if len(c.first) > wire.UntaggedLen { // the empty Read needs its Response
		v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.ReadResponse(0, 0, nil))))
	}
	v.closeCalled()
}

func TestGoodReplies(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range goodReplies() {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) { c.run(r.with(t)) })
		}
	})
}

// A responder that need not wait for an RTR may send right after its Reply. These messages are delivered, however they
// are divided into segments.
func TestFPDUBehindReply(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		all := append(usualReply.Bytes(), rawpeer.FPDUs(rawpeer.Send(1, []byte("early")), rawpeer.Send(2, []byte("bird")))...)
		for _, cut := range []int{len(all), 24 + 13, 24 + 33, 20} {
			v := newVictim(r)
			_, err := v.call(usualParams, func(rawpeer.Frame) []byte {
				v.Must(v.peer.Pieces(all, cut, 5*time.Millisecond))
				return nil
			})
			v.Must(err)
			for i, word := range []string{"early", "bird"} {
				v.received(i, word)
			}
			v.Must(v.peer.Conn.CloseWrite())
			if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
				v.Errorf("the end is %v, %v; want a FIN", end, err)
			}
			v.over()
			v.Check(v.qp.Err())
			v.completed(nil, nil)
			v.intact()
			v.bury()
		}
	})
}

// received demands the next message, in receive i.
func (v *victim) received(i int, word string) {
	v.Helper()
	v.Must(v.recvs.Wait(v.Ctx()))
	var got [1]rdma.Completion
	if v.recvs.Poll(got[:]); got[0].Status != rdma.Success || int(got[0].Length) != len(word) || got[0].ID != uint64(i+1) {
		v.Errorf("receive %d completed with %+v, want %q", i, got[0], word)
	}
	v.expect(v.local, i*recvLen, []byte(word))
}

// A Reply may arrive octet by octet.
func TestReplyInPieces(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		_, err := v.call(usualParams, func(rawpeer.Frame) []byte {
			v.Must(v.peer.Pieces(usualReply.Bytes(), 1, 5*time.Millisecond))
			return nil
		})
		v.Must(err)
		v.closeCalled()
	})
}
