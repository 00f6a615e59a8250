package rdma

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
)

// crowd is several connections from r.a to r.b. The ends at r.b take their receives from
// one SRQ and have one CQ.
type crowd struct {
	*rig
	srq  *SRQ
	x, y []*end
}

// crowd connects n QPs whose receives come from an SRQ of the given depth.
func (r *rig) crowd(n, depth int, x, y wants) *crowd {
	r.Helper()
	c := &crowd{rig: r}
	y.cqDepth = 4 * depth
	first := r.newEnd(r.b, y)
	var err error
	c.srq, err = first.pd.CreateSRQ(SRQConfig{Depth: depth, MaxSGE: 2})
	r.Must(err)
	r.Must(first.qp.Close())
	for range n {
		e := *first
		e.qp, err = e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv, SRQ: c.srq})
		r.Must(err)
		c.x, c.y = append(c.x, r.newEnd(r.a, x)), append(c.y, &e)
		r.Must(r.join(c.x[len(c.x)-1], &e, wants{}))
	}
	return c
}

// posts posts receives to the SRQ.
func (c *crowd) posts(wrs ...RecvWR) {
	c.Helper()
	_, err := c.srq.PostRecv(wrs...)
	c.Must(err)
}

// closes closes the QPs of one side, one by one, and checks that the SRQ is in use until
// the last one is closed.
func (c *crowd) closes() {
	c.Helper()
	for _, e := range c.y {
		c.Says(c.srq.Close(), ErrInUse, "close them first")
		c.Must(e.qp.Close())
	}
	c.Says(c.y[0].mr.pd.Close(), ErrInUse, "1 SRQs")
	c.Must(c.srq.Close())
	c.Must(c.srq.Close())
	_, err := c.srq.PostRecv(RecvWR{})
	c.Says(err, ErrClosed, "SRQ")
	c.Says(c.srq.SetLimit(1), ErrClosed, "SRQ")
	_, err = c.y[0].pd.CreateQP(QPConfig{SendCQ: c.y[0].send, RecvCQ: c.y[0].recv, SRQ: c.srq})
	c.Says(err, ErrClosed, "SRQ")
}

// pump sends n messages over each connection, from goroutines of their own, while several
// goroutines post receives. Every message must come once, to the QP of its connection, in
// the order of that connection, and with its octets.
func (c *crowd) pump(n int) {
	c.Helper()
	const size = 32
	depth := c.srq.Config().Depth
	sgl := func(slot uint64) []SGE {
		at := int(slot) * size
		return []SGE{c.y[0].mr.SGE(at, 3), c.y[0].mr.SGE(at+3, size-3)}
	}
	free := make(chan uint64, depth)     // slots of the region whose receive is to be posted
	credit := make(chan struct{}, depth) // receives that are posted and that no sender has claimed
	ctx, cancel := context.WithCancel(c.Ctx())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case slot := <-free:
					if _, err := c.srq.PostRecv(RecvWR{ID: slot, SGL: sgl(slot)}); err != nil {
						c.Error(err)
					}
					credit <- struct{}{}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for slot := range uint64(depth) {
		free <- slot
	}
	for k, x := range c.x {
		wg.Go(func() { x.talk(ctx, k, n, credit) })
	}
	next := map[uint32]uint64{}
	got := make([]Completion, 16)
	for left := n * len(c.y); left > 0; {
		c.Must(c.y[0].recv.Wait(ctx))
		for _, w := range got[:c.y[0].recv.Poll(got)] {
			b := c.y[0].mr.Bytes()[w.ID*size:][:size]
			k, i := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
			if w.Status != Success || w.Length < 16 || int(k) >= len(c.y) || w.QP != c.y[k].qp.Number() || i != next[w.QP] {
				c.Fatalf("completion %+v: message %d of connection %d, want %d", w, i, k, next[w.QP])
			}
			next[w.QP]++
			left--
			free <- w.ID
		}
	}
	cancel()
	wg.Wait()
}

// talk sends n messages of connection k. Each needs a credit.
func (e *end) talk(ctx context.Context, k, n int, credit <-chan struct{}) {
	b := make([]byte, 32)
	binary.LittleEndian.PutUint64(b, uint64(k))
	for i := range n {
		select {
		case <-credit:
		case <-ctx.Done():
			return
		}
		binary.LittleEndian.PutUint64(b[8:], uint64(i))
		for {
			wr := SendWR{Op: WRSend, Inline: b[:16+i%17]}
			if i%16 == 15 {
				wr.Flags = Signaled
			}
			if sent, _ := e.qp.PostSend(wr); sent == 1 {
				break
			}
			if _, err := e.send.Next(ctx); err != nil {
				return
			}
		}
	}
}

// TestSRQ: eight QPs take from one SRQ. Every message arrives once. At the end the SRQ is
// in use until the last QP is closed.
func TestSRQ(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		c := r.crowd(8, 16, wants{}, wants{})
		c.pump(300)
		if got := r.asked(r.b).QPs[0]; got.SRQ != c.srq.Number() || got.RecvDepth != 0 {
			r.Errorf("reported SRQ %d, depth %d", got.SRQ, got.RecvDepth)
		}
		c.closes()
	})
}

// TestSRQOfTwoEngines: eight QPs of two engines take from one SRQ, while their connections
// move from one engine to the other.
func TestSRQOfTwoEngines(t *testing.T) {
	for name, p := range map[string]Progress{"engine": ProgressEngine, "inline": ProgressInline} {
		t.Run(name, func(t *testing.T) {
			r := newStage(t, pair.Config{Queues: 2})
			r.openHosts(func(side pair.Side) Config { return Config{Ports: []string{r.pair.Ends[side].Name}, Progress: p} })
			c := r.crowd(8, 16, wants{}, wants{})
			engines := map[any]bool{}
			for i, e := range c.y {
				r.Must(e.flow().Move(r.Ctx(), i%2))
				engines[e.flow().Engine()] = true
			}
			if len(engines) != 2 {
				t.Fatalf("%d engines have the connections", len(engines))
			}
			var over atomic.Bool
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				for i := 0; !over.Load(); i++ {
					r.Check(c.y[i%8].flow().Move(r.Ctx(), (i+1+i/8)%2))
				}
			}()
			c.pump(300)
			over.Store(true)
			<-moved
			c.closes()
		})
	}
}

// TestSRQEmpty: a Send that finds the SRQ empty ends its connection with the same Terminate
// as with a queue of the QP. The other connections continue.
func TestSRQEmpty(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		c := r.crowd(2, 4, wants{}, wants{})
		c.x[0].post(SendWR{Op: WRSend})
		c.y[0].done()
		x, y := r.connect(wants{})
		x.post(SendWR{Op: WRSend})
		y.done()
		own, shared := y.qp.Err().(*QPError), c.y[0].qp.Err().(*QPError)
		if own.Code != shared.Code || own.HasSegment != shared.HasSegment || shared.Code == (TerminateCode{}) {
			r.Errorf("own queue: %v; shared: %v", own, shared)
		}
		r.none(c.y[0].recv)
		c.posts(RecvWR{ID: 7})
		c.x[1].post(SendWR{Op: WRSend})
		if got := r.ok(c.y[1].got(1)); got[0].ID != 7 || got[0].QP != c.y[1].qp.Number() {
			r.Errorf("%+v", got)
		}
		c.closes()
	})
}

// eventOf waits for the next event of a type, and skips others.
func (r *rig) eventOf(a *Adapter, want EventType) Event {
	r.Helper()
	for {
		select {
		case e := <-a.Events():
			if e.Type == want {
				return e
			}
		case <-r.Ctx().Done():
			r.Fatalf("no event %q", want)
		}
	}
}

// TestSRQEvents: the limit's event comes once, when a receive is taken or at once. When a
// QP ends, its last completion comes first, then QPLastWQEReached, then Done.
func TestSRQEvents(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		c := r.crowd(2, 4, wants{}, wants{})
		c.posts(RecvWR{ID: 1}, RecvWR{ID: 2}, RecvWR{ID: 3})
		r.Must(c.srq.SetLimit(3))
		r.noEvents(r.b)
		c.x[0].post(SendWR{Op: WRSend})
		if e := r.event(r.b, SRQLimitReached); e.SRQ != c.srq || c.srq.Limit() != 0 {
			r.Errorf("%+v, limit %d", e, c.srq.Limit())
		}
		c.x[1].post(SendWR{Op: WRSend})
		r.ok(c.y[0].got(2))
		r.noEvents(r.b)
		r.Must(c.srq.SetLimit(2))
		r.event(r.b, SRQLimitReached)
		r.Says(c.srq.SetLimit(5), nil, "choose 0 to 4")
		r.Says(c.srq.SetLimit(-1), nil, "choose 0 to 4")
		r.Must(c.x[0].qp.Close())
		if e := r.eventOf(r.b, QPLastWQEReached); e.QP != c.y[0].qp {
			r.Errorf("%+v", e)
		}
		c.y[0].done()
		if c.srq.Posted() != 1 {
			r.Errorf("%d receives are posted", c.srq.Posted())
		}
		r.none(c.y[0].recv)
		r.Must(c.y[1].qp.Close())
		if e := r.eventOf(r.b, QPLastWQEReached); e.QP != c.y[1].qp {
			r.Errorf("%+v", e)
		}
		r.noEvents(r.b)
		r.Must(c.y[0].qp.Close())
		r.Must(c.srq.Close())
	})
}

// TestSRQRefuses: each wrong use has an error that says what to do.
func TestSRQRefuses(t *testing.T) {
	r := newLoopback(t)
	x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
	for _, c := range []SRQConfig{{Depth: -1}, {Depth: maxSRQDepth + 1}, {MaxSGE: maxSGE + 1}, {MaxSGE: -1}} {
		_, err := x.pd.CreateSRQ(c)
		r.Says(err, nil, "choose 1 to")
	}
	srq, err := x.pd.CreateSRQ(SRQConfig{})
	r.Must(err)
	if srq.Config() != (SRQConfig{Depth: 128, MaxSGE: 4}) {
		r.Errorf("%+v", srq.Config())
	}
	_, err = y.pd.CreateQP(QPConfig{SendCQ: y.send, RecvCQ: y.recv, SRQ: srq})
	r.Says(err, nil, "another adapter's")
	_, err = x.pd.CreateQP(QPConfig{SendCQ: x.send, RecvCQ: x.recv, SRQ: srq, RecvDepth: 1})
	r.Says(err, nil, "RecvDepth and SRQ are set: choose one")
	qp, err := x.pd.CreateQP(QPConfig{SendCQ: x.send, RecvCQ: x.recv, SRQ: srq})
	r.Must(err)
	_, err = qp.PostRecv(RecvWR{})
	r.Says(err, ErrBadWR, fmt.Sprintf("post receive to QP %d: request 0 of 1: malformed work request: the QP takes its receives from SRQ %d", qp.Number(), srq.Number()))
	five := make([]SGE, 5)
	n, err := srq.PostRecv(RecvWR{}, RecvWR{SGL: five})
	r.Says(err, ErrBadWR, "5 elements: this queue takes 4")
	r.failsAt(1, n, err, "SRQ")
	n, err = srq.PostRecv(make([]RecvWR, 128)...)
	r.Says(err, ErrQueueFull, "SRQ")
	if n != 127 {
		r.Errorf("%d receives were taken", n)
	}
	r.Must(qp.Close())
	r.eventOf(r.a, QPLastWQEReached)
	r.Must(srq.Close())
	_, err = x.pd.CreateSRQ(SRQConfig{})
	r.Must(err)
	r.Must(x.a.Close())
	_, err = srq.PostRecv(RecvWR{})
	r.Says(err, ErrClosed, "SRQ")
	_, err = x.pd.CreateSRQ(SRQConfig{})
	r.Says(err, ErrClosed, "create SRQ")
}

// TestEndpointWithSRQ: an Endpoint takes its receives from an SRQ of another PD, and its
// CQ has room for all receives of the SRQ.
func TestEndpointWithSRQ(t *testing.T) {
	r := newLoopback(t)
	pool, err := r.b.AllocPD()
	r.Must(err)
	mr, err := pool.AllocMR(4096, LocalWrite)
	r.Must(err)
	srq, err := pool.CreateSRQ(SRQConfig{Depth: 300})
	r.Must(err)
	x, y := r.newEndpoint(r.a, EndpointConfig{}), r.newEndpoint(r.b, EndpointConfig{QP: QPConfig{SRQ: srq}})
	if y.RecvCQ.Depth() < 300 {
		r.Errorf("the CQ has room for %d completions", y.RecvCQ.Depth())
	}
	r.joinEndpoints(x, y)
	_, err = srq.PostRecv(RecvWR{SGL: []SGE{mr.SGE(0, 5)}})
	r.Must(err)
	_, err = x.QP.PostSend(SendWR{Op: WRSend, Inline: []byte("hello")})
	r.Must(err)
	if _, err = y.Received(r.Ctx()); err != nil || string(mr.Bytes()[:5]) != "hello" {
		r.Errorf("%v, %q", err, mr.Bytes()[:5])
	}
}

// The report lists SRQs with their receives, limits and QPs, and QPs with their rates and
// extensions.
func TestSRQReport(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{qp: QPConfig{Rate: 1e9}, dial: ConnParams{Extensions: ExtRFC7306 | ExtLongFPDUs}, accept: ConnParams{Extensions: ExtRFC7306 | ExtLongFPDUs}})
	for _, q := range append(r.asked(r.a).QPs, r.asked(r.b).QPs...) {
		if text := strings.Join(q.Columns(), " ") + " " + q.Connection(); q.Rate != 1e9 || !strings.Contains(text, " rate 1000000000 ") || !strings.HasSuffix(text, " ext rfc7306,long_fpdus") {
			r.Error(text)
		}
	}
	r.Must(x.qp.SetRate(0))
	r.Must(y.qp.SetRate(5))
	if a, b := r.asked(r.a).QPs[0].Rate, r.asked(r.b).QPs[0].Rate; a != 0 || b != 5 {
		r.Errorf("rates %d and %d", a, b)
	}

	c := r.crowd(2, 8, wants{}, wants{})
	unused, err := c.y[0].pd.CreateSRQ(SRQConfig{Depth: 3})
	r.Must(err)
	c.posts(RecvWR{}, RecvWR{}, RecvWR{})
	r.Must(c.srq.SetLimit(2))
	c.x[0].post(SendWR{Op: WRSend, Flags: Signaled})
	r.ok(c.x[0].sent(1))
	r.Must(c.y[0].recv.Wait(r.Ctx()))
	want := []report.SRQ{
		{Number: c.srq.Number(), PD: uint32(c.y[0].pd.domain), Depth: 8, MaxSGE: 2, Posted: 2, Taken: 1, Limit: 2, QPs: 2},
		{Number: unused.Number(), PD: uint32(c.y[0].pd.domain), Depth: 3, MaxSGE: 4},
	}
	if got := r.asked(r.b).SRQs; !slices.Equal(got, want) {
		r.Errorf("%+v, want %+v", got, want)
	}
	r.ok(c.y[0].got(1))
	want[0].Taken = 0
	if got := r.asked(r.b).SRQs; !slices.Equal(got, want) {
		r.Errorf("%+v, want %+v", got, want)
	}
	r.Must(unused.Close())
	c.closes()
	if got := r.asked(r.b).SRQs; len(got) != 0 {
		r.Errorf("after Close: %+v", got)
	}
}
