package rdma

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
)

// newEndpoint makes an Endpoint that is closed when the test ends.
func (r *rig) newEndpoint(a *Adapter, cfg EndpointConfig) *Endpoint {
	r.Helper()
	e, err := a.CreateEndpoint(cfg)
	r.Must(err)
	r.Cleanup(func() { r.Check(e.Close()) })
	return e
}

// joinEndpoints connects two Endpoints by Dial and Accept.
func (r *rig) joinEndpoints(x, y *Endpoint) {
	r.Helper()
	l := r.listen(r.b)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(r.Ctx())
		if err == nil {
			err = y.Accept(r.Ctx(), req, ConnParams{PrivateData: []byte("welcome")})
		}
		accepted <- err
	}()
	r.Must(x.Dial(r.Ctx(), l.Addr().String(), ConnParams{}))
	r.Must(<-accepted)
	if got := x.QP.Conn().PrivateData; string(got) != "welcome" {
		r.Errorf("private data %q", got)
	}
}

// left counts the CQs, QPs and regions of an adapter.
func (r *rig) left(a *Adapter) [3]int {
	r.Helper()
	report, err := a.Report(r.Ctx())
	r.Must(err)
	return [3]int{len(report.CQs), len(report.QPs), len(report.MRs)}
}

// TestEndpoint: two Endpoints of the zero configuration exchange a message and end in
// good order. Close leaves nothing, even if it is called twice.
func TestEndpoint(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.newEndpoint(r.a, EndpointConfig{}), r.newEndpoint(r.b, EndpointConfig{})
		_, err := y.QP.PostRecv(RecvWR{ID: 1, SGL: []SGE{y.MR.SGE(0, 100)}}, RecvWR{ID: 2})
		r.Must(err)
		r.joinEndpoints(x, y)
		n := copy(x.MR.Bytes(), "a message")
		_, err = x.QP.PostSend(SendWR{ID: 3, Op: WRSend, Flags: Signaled, SGL: []SGE{x.MR.SGE(0, n)}})
		r.Must(err)
		if c, err := x.Sent(r.Ctx()); err != nil || c.ID != 3 || c.Op != WCSend {
			t.Errorf("sent: %+v, %v", c, err)
		}
		c, err := y.Received(r.Ctx())
		if err != nil || c.ID != 1 || !bytes.Equal(y.MR.Bytes()[:c.Length], []byte("a message")) {
			t.Errorf("received: %+v, %v", c, err)
		}
		r.Must(x.QP.Disconnect(r.Ctx()))
		if c, err := y.Received(r.Ctx()); err != io.EOF || c.ID != 2 || c.Status != Flushed {
			t.Errorf("after the end: %+v, %v; want io.EOF", c, err)
		}
		for _, e := range []*Endpoint{x, y, x, y} {
			r.Must(e.Close())
		}
		for _, a := range []*Adapter{r.a, r.b} {
			if left := r.left(a); left != [3]int{} {
				t.Errorf("left: %v CQs, QPs and regions", left)
			}
		}
	})
}

// TestEndpointDefaults: an Endpoint has what its configuration says. The defaults are
// 64 KiB, a CQ as deep as its queue, and no access for the peer.
func TestEndpointDefaults(t *testing.T) {
	r := newLoopback(t)
	e := r.newEndpoint(r.a, EndpointConfig{})
	if n := len(e.MR.Bytes()); n != 64<<10 {
		t.Errorf("%d octets", n)
	}
	if e.SendCQ == e.RecvCQ || e.SendCQ.Depth() < 128 || e.RecvCQ.Depth() < 128 {
		t.Errorf("CQs of depth %d and %d, the same: %v", e.SendCQ.Depth(), e.RecvCQ.Depth(), e.SendCQ == e.RecvCQ)
	}
	one := r.newEndpoint(r.a, EndpointConfig{OneCQ: true, QP: QPConfig{SendDepth: 300, RecvDepth: 500}})
	if one.SendCQ != one.RecvCQ || one.SendCQ.Depth() < 800 {
		t.Errorf("one CQ of depth %d, the same: %v", one.SendCQ.Depth(), one.SendCQ == one.RecvCQ)
	}
	memory := make([]byte, 1000)
	over := r.newEndpoint(r.a, EndpointConfig{Memory: memory})
	if &over.MR.Bytes()[0] != &memory[0] || len(over.MR.Bytes()) != 1000 {
		t.Error("the region is not over the memory")
	}
	report, err := r.a.Report(r.Ctx())
	r.Must(err)
	for _, m := range report.MRs {
		if !slices.Equal(m.Rights, []string{"local_read", "local_write"}) {
			t.Errorf("rights %v", m.Rights)
		}
	}
}

// TestEndpointShares: Close leaves open what the caller passed in, stops at an object that
// is in use, and can be called again.
func TestEndpointShares(t *testing.T) {
	r := newLoopback(t)
	first := r.newEndpoint(r.a, EndpointConfig{Access: all})
	second := r.newEndpoint(r.a, EndpointConfig{MR: first.MR, QP: QPConfig{SendCQ: first.SendCQ}})
	third := r.newEndpoint(r.a, EndpointConfig{PD: first.PD, Size: 100})
	if second.PD != first.PD || second.MR != first.MR || second.SendCQ != first.SendCQ || second.RecvCQ == first.RecvCQ {
		t.Error("the second Endpoint has other parts than it was given")
	}
	if third.PD != first.PD || third.MR == first.MR || len(third.MR.Bytes()) != 100 {
		t.Error("the third Endpoint has other parts than it was given")
	}
	r.Says(first.Close(), ErrInUse, "close endpoint: close CQ")
	if first.MR.closed.Load() {
		t.Error("the region is closed before the CQ")
	}
	r.Must(second.Close())
	r.Says(first.Close(), ErrInUse, "close endpoint: close protection domain", "by 1 regions, 1 QPs and 0 SRQs")
	r.Must(third.Close())
	r.Must(first.Close())
	if left := r.left(r.a); left != [3]int{} {
		t.Errorf("left: %v CQs, QPs and regions", left)
	}
	if err := first.PD.enter(&first.PD.qps); err == nil {
		t.Error("the PD is open")
	}
}

// TestEndpointUndone: if any step fails, the error says so, and the steps before it leave
// nothing.
func TestEndpointUndone(t *testing.T) {
	r := newLoopback(t)
	gone, err := r.a.AllocPD()
	r.Must(err)
	r.Must(gone.Close())
	other := r.newEndpoint(r.b, EndpointConfig{})
	for name, c := range map[string]struct {
		cfg  EndpointConfig
		is   error
		says string
	}{
		"PD closed":           {EndpointConfig{PD: gone}, ErrClosed, "the protection domain is closed"},
		"region too large":    {EndpointConfig{Size: 1 << 40}, ErrHeapFull, "allocate region"},
		"no region":           {EndpointConfig{Size: -1}, nil, "ask for at least 1"},
		"no octets":           {EndpointConfig{Memory: []byte{}}, nil, "register region"},
		"send CQ":             {EndpointConfig{QP: QPConfig{SendDepth: -1}}, nil, "create CQ: depth -1"},
		"receive CQ":          {EndpointConfig{QP: QPConfig{RecvDepth: -2}}, nil, "create CQ: depth -2"},
		"queue too deep":      {EndpointConfig{QP: QPConfig{SendDepth: 1 << 20}}, nil, "SendDepth is 1048576"},
		"list too long":       {EndpointConfig{QP: QPConfig{MaxSGE: 1000}}, nil, "MaxSGE is 1000"},
		"CQ of another":       {EndpointConfig{QP: QPConfig{SendCQ: other.SendCQ}}, nil, "SendCQ"},
		"MR of another":       {EndpointConfig{MR: other.MR}, nil, "another adapter"},
		"MR and Size":         {EndpointConfig{MR: other.MR, Size: 1}, nil, "leave Memory, Size and Access out"},
		"MR and PD":           {EndpointConfig{MR: other.MR, PD: gone}, nil, "leave PD out"},
		"Memory and Size":     {EndpointConfig{Memory: make([]byte, 1), Size: 1}, nil, "choose one"},
		"one CQ and its name": {EndpointConfig{OneCQ: true, QP: QPConfig{RecvCQ: other.RecvCQ}}, nil, "choose one"},
	} {
		pds := r.pds(r.a)
		e, err := r.a.CreateEndpoint(c.cfg)
		if e != nil {
			t.Errorf("%s: there is an Endpoint", name)
		}
		r.Says(err, c.is, "create endpoint: ", c.says)
		if left := r.left(r.a); left != [3]int{} || r.pds(r.a) != pds {
			t.Errorf("%s: left: %v CQs, QPs and regions, %d PDs, were %d", name, left, r.pds(r.a), pds)
		}
	}
	closed := r.open(Config{KernelPort: true})
	r.Must(closed.Close())
	_, err = closed.CreateEndpoint(EndpointConfig{})
	r.Says(err, ErrClosed, "create endpoint: allocate protection domain")
}

// pds returns how many protection domains are in a's table.
func (r *rig) pds(a *Adapter) int { return a.table.Stats().PDs }

// TestEndpointSaysWhyItFailed: the error of Sent and Received is the reason why the
// connection ended, and the completion comes with it.
func TestEndpointSaysWhyItFailed(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.newEndpoint(r.a, EndpointConfig{}), r.newEndpoint(r.b, EndpointConfig{})
		_, err := y.QP.PostRecv(RecvWR{ID: 7})
		r.Must(err)
		r.joinEndpoints(x, y)
		_, err = x.QP.PostSend(SendWR{ID: 8, Op: WRRead, Flags: Signaled, SGL: []SGE{x.MR.SGE(0, 8)}, RKey: y.MR.RKey()})
		r.Must(err)
		c, err := x.Sent(r.Ctx())
		r.Says(err, nil, "RDMA Read")
		if failed := new(QPError); c.ID != 8 || c.Status == Success || !errors.As(err, &failed) {
			t.Errorf("%+v, %v: want a QPError", c, err)
		}
		c, err = y.Received(r.Ctx())
		if failed := new(QPError); c.ID != 7 || c.Status != Flushed || !errors.As(err, &failed) {
			t.Errorf("%+v, %v: want a QPError", c, err)
		}
	})
}

// TestEndpointWaits: Sent and Received end with their context, and with Close.
func TestEndpointWaits(t *testing.T) {
	r := newLoopback(t)
	e := r.newEndpoint(r.a, EndpointConfig{})
	ctx, cancel := context.WithCancelCause(r.Ctx())
	cancel(io.ErrNoProgress)
	ended := make(chan error)
	for _, wait := range []func(context.Context) (Completion, error){e.Sent, e.Received} {
		_, err := wait(ctx)
		r.Says(err, io.ErrNoProgress)
		go func() {
			_, err := wait(r.Ctx())
			ended <- err
		}()
	}
	r.Must(e.Close())
	for range 2 {
		r.Says(<-ended, ErrClosed)
	}
}
