package rdma

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
)

// ErrClosed is net.ErrClosed for errors.Is.
func TestClosedIsNetClosed(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	l := r.listen(r.a)
	r.Must(l.Close())
	_, err := l.Accept(r.Ctx())
	r.Says(err, net.ErrClosed)
	r.Must(x.qp.Close())
	r.Says(x.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{}), net.ErrClosed)
	r.Must(r.a.Close())
	_, err = r.a.AllocPD()
	r.Says(err, net.ErrClosed)
	if errors.Is(ErrInUse, net.ErrClosed) || errors.Is(ErrClosed, context.Canceled) {
		r.Error("everything is closed")
	}
}

// Every timeout is a net.Error with Timeout, whichever limit caused it.
func TestTimeoutIsNetTimeout(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	silent := r.plainPeer(func(c net.Conn) { r.Cleanup(func() { c.Close() }) })
	l := r.listen(r.b)
	defer l.Close()
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		r.Cleanup(cancel)
		return ctx
	}
	_, accepted := l.Accept(soon())
	for what, err := range map[string]error{
		"Dial's own limit":   x.qp.Dial(r.Ctx(), silent, ConnParams{Timeout: 10 * time.Millisecond}),
		"Dial's context":     x.qp.Dial(soon(), silent, ConnParams{}),
		"Accept's context":   accepted,
		"Wait's context":     x.send.Wait(soon()),
		"the peer's silence": &QPError{QP: 7, Cause: rdmap.Cause{Err: stream.ErrTimeout}},
	} {
		var e net.Error
		if !errors.As(err, &e) || !e.Timeout() {
			t.Errorf("%s: %v is no timeout", what, err)
		}
	}
	var e net.Error
	if err := x.qp.Dial(r.Ctx(), ":1", ConnParams{}); errors.As(err, &e) && e.Timeout() {
		t.Errorf("%v is a timeout", err)
	}
}

// This package's errors name each fault of a peer's Reply.
func TestReplyErrors(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	bad := func(edit func(reply []byte)) string {
		return r.plainPeer(r.answered(func(q mpa.Request) []byte {
			b := accept(q)
			edit(b)
			return b
		}, nil))
	}
	r.Says(x.qp.Dial(r.Ctx(), bad(func(b []byte) { b[0] = 'X' }), ConnParams{}), ErrNotMPA, "does not speak MPA")
	r.Says(x.qp.Dial(r.Ctx(), bad(func(b []byte) { b[22] |= 1 }), ConnParams{}), ErrMismatch, "wants 264 RDMA Reads")
	address := r.plainPeer(r.answered(func(q mpa.Request) []byte {
		b, err := q.Reject([]byte("full"))
		r.Check(err)
		return b
	}, nil))
	err := x.qp.Dial(r.Ctx(), address, ConnParams{})
	var rejected *RejectedError
	if !errors.As(err, &rejected) || string(rejected.PrivateData) != "full" || errors.Is(err, ErrMarkersRefused) {
		t.Errorf("%v: %+v", err, rejected)
	}
	r.Says(x.qp.Dial(r.Ctx(), address, ConnParams{Markers: true}), nil, "4 octets of private data")
}

// Each end learns the read depths that the other end has sent (RFC 6581 §9.1), not
// only the depths that were agreed on.
func TestPeerDepths(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{dial: ConnParams{IRD: 20, ORD: 40}, accept: ConnParams{IRD: 30, ORD: 3}})
	got, peer := x.qp.Conn(), y.qp.Conn()
	if !got.Depths || got.PeerIRD != 30 || got.PeerORD != 3 || got.IRD != 20 || got.ORD != 30 {
		t.Errorf("dialled: %+v", got)
	}
	if !peer.Depths || peer.PeerIRD != 20 || peer.PeerORD != 40 || peer.IRD != 30 || peer.ORD != 3 {
		t.Errorf("accepted: %+v", peer)
	}
	x, y = r.connect(wants{dial: ConnParams{Revision: 1}})
	for _, c := range []Conn{x.qp.Conn(), y.qp.Conn()} {
		if c.Depths || c.PeerIRD != 0 || c.PeerORD != 0 {
			t.Errorf("revision 1: %+v", c)
		}
	}
}
