package rdma

import (
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	common "github.com/stag-rdma/stag/test/rig"
)

// patience limits every wait of a test. A test reaches it only if something is wrong.
const patience = 30 * time.Second

// rig is two adapters that reach each other. The test fails if they leave anything behind.
type rig struct {
	common.Stage
	a, b *Adapter
	host string // of b
	pair *pair.Pair
}

// onBothPaths runs test over the kernel port, as any user, and over the
// offloaded path, as root.
func onBothPaths(t *testing.T, test func(r *rig)) {
	t.Run("kernel port", func(t *testing.T) { test(newLoopback(t)) })
	t.Run("offloaded", func(t *testing.T) { test(newHosts(t, pair.Config{})) })
}

// onAllPaths runs test on both paths, and between an offloaded end and a kernel port, in
// both directions. The ends then have different carriers, as two machines may have.
func onAllPaths(t *testing.T, test func(r *rig)) {
	onBothPaths(t, test)
	t.Run("offloaded to kernel port", func(t *testing.T) { test(newCrossing(t, pair.A)) })
	t.Run("kernel port to offloaded", func(t *testing.T) { test(newCrossing(t, pair.B)) })
}

// newCrossing returns a rig with one offloaded side. The other side has the same cable and
// the kernel's TCP.
func newCrossing(t *testing.T, offloaded pair.Side) *rig {
	r := newStage(t, pair.Config{})
	r.openHosts(func(side pair.Side) Config {
		c := Config{Carrier: CarrierKernel, Ports: []string{r.pair.Ends[side].Name}}
		if side == offloaded {
			c.Carrier = CarrierAFXDP
		}
		return c
	})
	for side, a := range map[pair.Side]*Adapter{pair.A: r.a, pair.B: r.b} {
		if got, _ := a.Carrier(); (got == CarrierAFXDP) != (side == offloaded) {
			r.Fatalf("side %v has %v", side, got)
		}
	}
	return r
}

func newLoopback(t *testing.T) *rig {
	r := &rig{Stage: common.On(t), host: "127.0.0.1"}
	common.NoLeaks(r)
	r.a, r.b = r.open(Config{KernelPort: true}), r.open(Config{KernelPort: true})
	return r
}

func newHosts(t *testing.T, c pair.Config) *rig {
	r := newStage(t, c)
	r.openHosts(func(side pair.Side) Config { return Config{Ports: []string{r.pair.Ends[side].Name}} })
	return r
}

// newStage returns a rig without adapters.
func newStage(t *testing.T, c pair.Config) *rig {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	r.pair = netns.XDPPair(t, c)
	r.host = r.pair.Ends[pair.B].V4.Addr().String()
	return r
}

// openHosts opens an adapter on each side.
func (r *rig) openHosts(config func(pair.Side) Config) {
	r.Helper()
	for side, a := range map[pair.Side]**Adapter{pair.A: &r.a, pair.B: &r.b} {
		r.Must(r.pair.Do(side, func() error {
			*a = r.open(config(side))
			return nil
		}))
	}
}

// open opens an adapter. When the test ends, the adapter is checked and closed.
func (r *rig) open(c Config) *Adapter {
	r.Helper()
	a, err := Open(c)
	r.Must(err)
	r.Cleanup(func() {
		r.noFlows(a)
		r.Check(a.Close())
		r.Check(a.Close())
	})
	return a
}

// noFlows closes a's QPs, and waits until only flows in TIME-WAIT are steered.
func (r *rig) noFlows(a *Adapter) {
	for _, qp := range a.allQPs() {
		r.Check(qp.Close())
	}
	if a.device.Life().Err() != nil {
		return // the test has closed the adapter
	}
	for _, p := range a.device.Ports() {
		r.Eventually("flow entries are gone", func() bool {
			n := 0
			r.Check(p.NIC().Steering().Flows(func(bpf.FlowKey, bpf.Flow) bool { n++; return true }))
			return n == len(p.NIC().Flows()) // all are in TIME-WAIT
		})
	}
}

// wants are the properties of a test's connection. The zero value is the usual connection.
type wants struct {
	heap         int // octets of each side's region; 0 means 64 KiB
	access       Access
	qp           QPConfig
	cqDepth      int
	dial, accept ConnParams
}

// end is one side of a connection, with a region for the test.
type end struct {
	r          *rig
	a          *Adapter
	pd         *PD
	send, recv *CQ
	qp         *QP
	mr         *MR
}

const all = LocalWrite | RemoteWrite | RemoteRead

// newEnd makes everything of an end except the connection.
func (r *rig) newEnd(a *Adapter, w wants) *end {
	r.Helper()
	if w.heap == 0 {
		w.heap = 64 << 10
	}
	if w.access == 0 {
		w.access = all
	}
	if w.cqDepth == 0 {
		w.cqDepth = 512
	}
	e := &end{r: r, a: a}
	var err error
	e.pd, err = a.AllocPD()
	r.Must(err)
	e.send, err = a.CreateCQ(w.cqDepth)
	r.Must(err)
	e.recv, err = a.CreateCQ(w.cqDepth)
	r.Must(err)
	w.qp.SendCQ, w.qp.RecvCQ = e.send, e.recv
	e.qp, err = e.pd.CreateQP(w.qp)
	r.Must(err)
	e.mr, err = e.pd.AllocMR(w.heap, w.access)
	r.Must(err)
	return e
}

// another returns an end with a QP of its own and the other objects of e.
func (e *end) another() *end {
	e.r.Helper()
	o := *e
	var err error
	o.qp, err = e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv})
	e.r.Must(err)
	return &o
}

// lend registers a region.
func (e *end) lend(access Access, o ...MROptions) *MR {
	e.r.Helper()
	mr, err := e.pd.AllocMR(4096, access, o...)
	e.r.Must(err)
	return mr
}

// connect makes a connection from a's end to b's.
func (r *rig) connect(w wants) (x, y *end) {
	r.Helper()
	x, y = r.newEnd(r.a, w), r.newEnd(r.b, w)
	r.Must(r.join(x, y, w))
	return x, y
}

// join connects two ends. It returns the error of Dial or of Accept.
func (r *rig) join(x, y *end, w wants) error {
	r.Helper()
	l := r.listen(y.a)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(r.Ctx())
		if err == nil {
			err = req.Accept(r.Ctx(), y.qp, w.accept)
		}
		accepted <- err
	}()
	err := x.qp.Dial(r.Ctx(), l.Addr().String(), w.dial)
	if err != nil {
		l.Close()
	}
	return errors.Join(err, <-accepted)
}

func (r *rig) listen(a *Adapter) *Listener {
	r.Helper()
	l, err := a.Listen(r.Ctx(), r.host+":0", ListenConfig{})
	r.Must(err)
	return l
}

// post posts requests to the send queue and demands that all are taken.
func (e *end) post(wrs ...SendWR) {
	e.r.Helper()
	_, err := e.qp.PostSend(wrs...)
	e.r.Must(err)
}

// receive posts receives and demands that all are taken.
func (e *end) receive(wrs ...RecvWR) {
	e.r.Helper()
	_, err := e.qp.PostRecv(wrs...)
	e.r.Must(err)
}

// sent waits for the next n completions of the send queue. got does so for the receive
// queue.
func (e *end) sent(n int) []Completion { e.r.Helper(); return e.r.poll(e.send, n) }
func (e *end) got(n int) []Completion  { e.r.Helper(); return e.r.poll(e.recv, n) }

func (r *rig) poll(cq *CQ, n int) []Completion {
	r.Helper()
	dst := make([]Completion, n)
	for have := 0; have < n; {
		if err := cq.Wait(r.Ctx()); err != nil {
			r.Fatalf("%d of %d completions: %v", have, n, err)
		}
		have += cq.Poll(dst[have:])
	}
	return dst
}

// ok demands that every completion is a success.
func (r *rig) ok(all []Completion) []Completion {
	r.Helper()
	for _, c := range all {
		if c.Status != Success {
			r.Fatalf("completion %+v", c)
		}
	}
	return all
}

// none demands that a CQ is empty.
func (r *rig) none(cq *CQ) {
	r.Helper()
	var c [1]Completion
	if cq.Poll(c[:]) != 0 {
		r.Errorf("unexpected completion %+v", c[0])
	}
}

// done waits for the end of the connection.
func (e *end) done() {
	e.r.Helper()
	select {
	case <-e.qp.Done():
	case <-time.After(patience):
		e.r.Fatalf("the QP is not done: state %v, %v", e.qp.State(), e.qp.Err())
	}
}

// fill fills b with a pattern that is different for each seed.
func fill(b []byte, seed int) {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

// pairConfig is the usual pair of interfaces.
var pairConfig = pair.Config{}
