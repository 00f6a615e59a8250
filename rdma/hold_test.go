package rdma

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
)

// holding is a connection whose receiver at b waits for receives.
var holding = wants{heap: 1 << 20, qp: QPConfig{Hold: HoldForever, Client: 7}}

// floods sends n messages of size octets, each from its own place of the region, until the
// first one waits for a receive at y.
func (e *end) floods(y *end, n, size int) {
	e.r.Helper()
	fill(e.mr.Bytes(), 7)
	for i := range n {
		e.post(SendWR{ID: uint64(i), Op: WRSend, Flags: Signaled, SGL: []SGE{e.mr.SGE(i*size, size)}})
	}
	e.r.Eventually("the first message waits", func() bool { _, ok := y.qp.Holding(); return ok })
}

// drinks posts a receive for each of n messages, one after the other, and compares the
// octets.
func (e *end) drinks(from *end, n, size int) {
	e.r.Helper()
	for i := range n {
		e.receive(RecvWR{ID: uint64(i), SGL: []SGE{e.mr.SGE(i*size, size)}})
		if c := e.r.ok(e.got(1))[0]; c.ID != uint64(i) || int(c.Length) != size {
			e.r.Fatalf("message %d: %+v", i, c)
		}
	}
	if !bytes.Equal(e.mr.Bytes()[:n*size], from.mr.Bytes()[:n*size]) {
		e.r.Error("other octets have come")
	}
}

// Messages that find no receive stop their connection and no other. None is lost.
func TestHold(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const n, size = 16, 64 << 10
		x, y := r.connect(holding)
		v, w := r.connect(wants{heap: 4 * slot})
		x.floods(y, n, size)
		for k := range 20 {
			r.Must(shuttle(r.Ctx(), v, w, 30000, k))
		}
		q := r.reportOf(y)
		if q.Holding == 0 || r.count(q.Counters, "rdmap", "holds") != 1 || r.count(q.Counters, "rdmap", "sends_in") != 0 {
			t.Errorf("report: holding for %d ms, counters %+v", q.Holding, q.Counters)
		}
		y.drinks(x, n, size)
		r.ok(x.sent(n))
		if q := r.reportOf(y); q.Holding != 0 || r.count(q.Counters, "rdmap", "sends_in") != n {
			t.Errorf("report: holding for %d ms, counters %+v", q.Holding, q.Counters)
		}
		r.Must(both(r.Ctx(), x.qp, y.qp))
		r.Must(both(r.Ctx(), v.qp, w.qp))
	})
}

func (r *rig) reportOf(e *end) report.QP {
	r.Helper()
	for _, q := range r.asked(e.a).QPs {
		if q.Number == e.qp.Number() {
			return q
		}
	}
	r.Fatal("the report does not have the QP")
	return report.QP{}
}

// both closes a connection from both ends.
func both(ctx context.Context, qps ...*QP) error {
	var wg sync.WaitGroup
	errs := make([]error, len(qps))
	for i, qp := range qps {
		wg.Go(func() { errs[i] = qp.Disconnect(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Many connections that hold take the receive frames of a small port only up to their
// windows. Another connection goes on.
func TestHoldLeavesFrames(t *testing.T) {
	r := newStage(t, pair.Config{})
	r.openHosts(func(side pair.Side) Config {
		return Config{Ports: []string{r.pair.Ends[side].Name}, RxFrames: 256, TxFrames: 512}
	})
	const n, size = 16, 64 << 10
	var xs, ys []*end
	for range 24 {
		x, y := r.connect(holding)
		xs, ys = append(xs, x), append(ys, y)
		x.floods(y, n, size)
	}
	v, w := r.connect(wants{heap: 4 * slot})
	for k := range 10 {
		r.Must(shuttle(r.Ctx(), v, w, 100000, k))
	}
	for i := range 4 {
		ys[i].drinks(xs[i], n, size)
		r.ok(xs[i].sent(n))
	}
}

// When the time is over, both ends learn the same as without Hold.
func TestHoldIsOver(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{Hold: 200 * time.Millisecond}})
		x.post(SendWR{Op: WRSend})
		for _, e := range []*end{x, y} {
			e.done()
			r.Says(e.qp.Err(), nil, "no buffer for the message (1/2/02)")
		}
	})
}

// A connection that holds ends when either end wants it to, and the close in good order of
// the peer waits for the receiver.
func TestEndsOfHold(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for name, end := range map[string]func(x, y *end){
			"abort":            func(x, y *end) { y.qp.Abort() },
			"abort by peer":    func(x, y *end) { x.qp.Abort() },
			"close":            func(x, y *end) { r.Check(y.qp.Close()) },
			"close by peer":    func(x, y *end) { r.Check(x.qp.Close()) },
			"disconnect":       func(x, y *end) { _ = y.qp.Disconnect(r.Ctx()) }, // the error is checked below
			"fail of peer":     func(x, y *end) { x.qp.Fail() },
			"peer disconnects": nil,
		} {
			x, y := r.connect(holding)
			x.floods(y, 16, 64<<10)
			if end != nil {
				end(x, y)
			} else {
				over := make(chan error, 1)
				go func() { over <- x.qp.Disconnect(r.Ctx()) }()
				y.drinks(x, 16, 64<<10)
				r.Must(errors.Join(y.qp.Disconnect(r.Ctx()), <-over))
			}
			x.done()
			y.done()
			if _, ok := y.qp.Holding(); ok || (end != nil) != (y.qp.Err() != nil) {
				t.Errorf("%s: holding %v, %v", name, ok, y.qp.Err())
			}
			y.receive(RecvWR{ID: 99})
			if c := y.got(1)[0]; c.ID != 99 || c.Status != Flushed {
				t.Errorf("%s: %+v", name, c)
			}
		}
	})
}

// QPs that hold on one SRQ are all woken by a post. Each receive serves one message.
func TestHoldOnSRQ(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const n = 8
		first := r.newEnd(r.b, holding)
		srq, err := first.pd.CreateSRQ(SRQConfig{Depth: 4})
		r.Must(err)
		ys := map[uint32]*end{}
		for i := range n {
			y := *first
			y.qp, err = y.pd.CreateQP(QPConfig{SendCQ: y.send, RecvCQ: y.recv, SRQ: srq, Hold: HoldForever})
			r.Must(err)
			x := r.newEnd(r.a, wants{})
			r.Must(r.join(x, &y, wants{}))
			for range 2 {
				x.post(SendWR{Op: WRSend, Inline: []byte{byte(i)}})
			}
			r.Eventually("the message waits", func() bool { _, ok := y.qp.Holding(); return ok })
			ys[y.qp.Number()] = &y
		}
		got := map[uint32]int{}
		for range 2 * n {
			_, err := srq.PostRecv(RecvWR{SGL: []SGE{first.mr.SGE(0, 1)}})
			r.Must(err)
			got[r.ok(first.got(1))[0].QP]++
		}
		for number, y := range ys {
			if _, ok := y.qp.Holding(); ok || got[number] != 2 {
				t.Errorf("QP %d has got %d messages, and holds: %v", number, got[number], ok)
			}
		}
		for _, y := range ys {
			r.Must(y.qp.Close())
		}
		r.Must(srq.Close())
	})
}

// A connection that holds moves between ports, with the messages that wait.
func TestHoldMovesBetweenPorts(t *testing.T) {
	x := newCrossed(t, crossing{})
	const n, size = 8, 100 << 10
	a, b := x.connect(holding)
	a.floods(b, n, size)
	x.Must(x.drainAll(pair.B, x.b, 4))
	if _, ok := b.qp.Holding(); !ok {
		t.Error("the move has ended the wait")
	}
	b.drinks(a, n/2, size)
	x.Must(x.drainAll(pair.A, x.a, 2))
	x.Must(x.drainAll(pair.B, x.b, 2))
	for i := range n / 2 {
		b.receive(RecvWR{ID: uint64(i), SGL: []SGE{b.mr.SGE((n/2+i)*size, size)}})
	}
	x.ok(b.got(n / 2))
	if !bytes.Equal(a.mr.Bytes()[:n*size], b.mr.Bytes()[:n*size]) {
		t.Error("other octets have come")
	}
	x.ok(a.sent(n))
}

// A connection that holds goes on in another adapter, and holds there. The limit of the wait
// goes with it.
func TestHoldHandedOver(t *testing.T) {
	r := newUpgradable(t)
	x := r.newEnd(r.a, holding)
	l, err := r.a.Listen(r.Ctx(), ":0", ListenConfig{})
	r.Must(err)
	accepted := make(chan error, 1)
	go func() {
		q, err := l.Accept(r.Ctx())
		if err == nil {
			err = q.Accept(r.Ctx(), x.qp, ConnParams{})
		}
		accepted <- err
	}()
	y := r.newEnd(r.b, holding)
	r.Must(y.qp.Dial(r.Ctx(), net.JoinHostPort(r.pair.Ends[pair.A].V4.Addr().String(), portOf(l)), ConnParams{}))
	r.Must(<-accepted)
	const n, size = 4, 64 << 10
	y.floods(x, n, size)
	number, cq := x.qp.Number(), x.recv.Number()
	_, e, err := r.handOver(HandOver{}, r.upgradable(), Inherit{})
	r.Must(err)
	heir := *x
	heir.a, heir.qp, heir.recv, heir.mr = r.a, e.QP(number), e.CQ(cq), e.MR(x.mr.LKey())
	if c := heir.qp.Config(); c.Hold != HoldForever || c.Client != 7 || heir.qp.machine.Client() != 7 {
		t.Errorf("the QP has %+v", c)
	}
	if _, ok := heir.qp.Holding(); !ok {
		t.Error("no message waits")
	}
	heir.drinks(y, n, size)
	r.ok(y.sent(n))
}

// The configuration is checked.
func TestHoldConfig(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	_, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv, Hold: -2})
	r.Says(err, nil, "Hold of -2ns", "HoldForever")
}
