package rdma

import (
	"net"
	"testing"
	"time"
)

// inOrder demands that the next requests are those of these peers. They are closed.
func (p peers) inOrder(want ...net.Conn) {
	p.Helper()
	for i, c := range want {
		req, err := p.l.Accept(p.Ctx())
		p.Must(err)
		if got := req.Peer().Remote.String(); got != c.LocalAddr().String() {
			p.Errorf("request %d is of %v, want %v", i, got, c.LocalAddr())
		}
		p.Check(req.Close())
	}
}

// Requests come to Accept in the order in which their connections were accepted.
func TestListenerKeepsOrder(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{Order: patience})
	for range 20 {
		a, b, c := p.send(nil), p.send(nil), p.send(r.soundRequest())
		for _, late := range []net.Conn{b, a} {
			_, err := late.Write(r.soundRequest())
			r.Must(err)
		}
		p.inOrder(a, b, c)
	}
	// A peer that goes without a Request, and one that sends nonsense, let the others pass.
	a, b, c, d := p.send(nil), p.send(make([]byte, 20)), p.send(r.soundRequest()), p.send(r.soundRequest())
	r.closed(b)
	a.Close()
	p.inOrder(c, d)
}

// A peer that sends nothing for as long as it may holds others up only for a moment.
func TestListenerOrderIsNotForEver(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{Timeout: time.Hour})
	silent, b := p.send(nil), p.send(r.soundRequest())
	p.inOrder(b)
	c := p.send(r.soundRequest())
	p.inOrder(c)
	_, err := silent.Write(r.soundRequest())
	r.Must(err)
	p.inOrder(silent)
}

// A Request that waits for its turn counts among those for which a hand-over waits. Close
// ends it.
func TestCloseWhileARequestWaitsForItsTurn(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{Timeout: time.Hour, Order: time.Hour})
	p.send(nil)
	waits := p.send(r.soundRequest())
	heard := func() int { p.l.mu.Lock(); defer p.l.mu.Unlock(); return p.l.heard }
	r.Eventually("a Request waits", func() bool { return heard() == 1 })
	if n := p.l.waiting(false); n != 3 { // the goroutine that accepts, the silent peer, and this one
		t.Errorf("%d wait", n)
	}
	r.Must(p.l.Close())
	r.closed(waits)
	if n := heard(); n != 0 {
		t.Errorf("%d Requests wait after Close", n)
	}
}

// Dial says when the Request has been sent, while the peer has not answered yet.
func TestRequested(t *testing.T) {
	r := newLoopback(t)
	p := r.peersOf(ListenConfig{})
	x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
	requested, dialed := make(chan struct{}), make(chan error, 1)
	go func() {
		dialed <- x.qp.Dial(r.Ctx(), p.l.Addr().String(), ConnParams{Requested: func() { close(requested) }})
	}()
	select {
	case <-requested:
	case err := <-dialed:
		t.Fatalf("Dial without an answer: %v", err)
	case <-r.Ctx().Done():
		t.Fatal("the Request has not been sent")
	}
	req, err := p.l.Accept(r.Ctx())
	r.Must(err)
	r.Must(req.Accept(r.Ctx(), y.qp, ConnParams{}))
	r.Must(<-dialed)
}
