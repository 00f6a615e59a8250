package rdma

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/tpt"
)

// Adapter is what an RNIC is: ports, memory, a table that says who may use
// which of it, and everything that is made of them. It is safe for concurrent
// use.
//
// The order of locks: the device's, which Use takes, comes first, and no goroutine
// takes it a second time, because a Close that waits in between would stop both.
// PD.mu, QP.mu, CQ.mu, Adapter.mu and that of the heap come last: a goroutine that
// holds one of them takes no other lock of this package.
type Adapter struct {
	// Fixed after Open.
	device *adapter.Adapter
	table  *tpt.Table    // of device
	board  *signal.Board // of device
	log    *slog.Logger
	cfg    Config
	events *events

	lastCQ atomic.Uint32 // number of the last CQ that was made
	fatal  logLimit      // of lines about QPs that ended badly: peers can provoke them

	mu      sync.Mutex // guards what follows; no engine takes it
	qps     map[*QP]struct{}
	numbers qpNumbers
	retired totals // of QPs that are closed
	cqs     map[*CQ]struct{}
	loose   map[io.Closer]struct{} // listeners, and requests that have no answer yet
	shut    bool                   // neither qps nor loose takes anything in any more
}

// Open makes an adapter. It belongs to the network namespace of the calling
// thread, and stays bound to it: Dial and Listen happen there, whichever
// thread calls them. The caller closes it.
func Open(cfg Config) (*Adapter, error) {
	a := &Adapter{
		cfg: cfg, events: newEvents(), fatal: logLimit{burst: 10},
		qps: map[*QP]struct{}{}, retired: totals{}, cqs: map[*CQ]struct{}{}, loose: map[io.Closer]struct{}{},
	}
	device := cfg.device()
	device.Notify = a.notify
	var err error
	if a.device, err = adapter.Open(device, layer{a}); err != nil {
		return nil, err
	}
	a.table, a.board, a.log = a.device.Table(), a.device.Board(), a.device.Config().Log
	return a, nil
}

// Close ends everything of the adapter: listeners, connections (with a reset),
// QPs and CQs, regions, ports. When it returns nothing of it runs, and no
// memory that was registered is accessed any more. Memory from AllocMR stays as it
// is until its region is closed too; regions that nobody closes keep the heap
// until the process ends. It may be called twice.
func (a *Adapter) Close() error { return a.device.Close() }

// Report is what the adapter and everything of it is like now: what `stag show`
// and `stag metrics` print. It asks each engine for what belongs to that, in
// few and short calls between steps, and disturbs nobody otherwise. ErrClosed
// from the moment when Close begins.
func (a *Adapter) Report(ctx context.Context) (report.Engine, error) {
	return a.device.Report(ctx, report.AllParts)
}

// Capture calls f with the packets that the adapter's engines receive and send
// from now on: at once with an empty batch, which says that it has begun, then
// whenever there are some. It ends when ctx does, when f fails, or when the
// adapter is closed; f's failure alone is an error, and that of all engines.
//
// While f is at work packets are kept for it, up to 8 MiB for each queue (less
// where there are more than eight); those that do not fit are lost and counted.
// Engines wait for nobody. The packets of several queues are in the order of
// their time. With the first packet of a connection comes what its ends agreed on
// before it was taken over (Batch.Streams).
//
// With filter.Flow or filter.QP, the packets of that flow are captured at whichever
// port they arrive, unless filter.Device names one. Packets of an adapter with
// KernelPort are the kernel's, and cannot be captured here. tap.ErrTooMany; ErrClosed.
func (a *Adapter) Capture(ctx context.Context, filter report.Filter, f func(report.Batch) error) error {
	return a.device.Capture(ctx, filter, f)
}

// hold notes something that Close must close. false: it is too late.
func (a *Adapter) hold(c io.Closer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.shut {
		a.loose[c] = struct{}{}
	}
	return !a.shut
}

func (a *Adapter) letGo(c io.Closer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.loose, c)
}

func (a *Adapter) takeLoose() (all []io.Closer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut = true
	for c := range a.loose {
		all = append(all, c)
	}
	return all
}

func (a *Adapter) allQPs() (all []*QP) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for qp := range a.qps {
		all = append(all, qp)
	}
	return all
}

// layer is the verbs as the device sees them. Its methods are called from
// adapter.Open on: they use nothing that Open sets after that.
type layer struct{ *Adapter }

// CloseConnections implements adapter.Closer.
func (l layer) CloseConnections() {
	for _, c := range l.takeLoose() {
		c.Close()
	}
	for _, qp := range l.allQPs() {
		qp.Close()
	}
}

// Connections implements adapter.Reporter.
func (l layer) Connections() []adapter.Connection {
	qps := l.allQPs()
	all := make([]adapter.Connection, 0, len(qps))
	for _, qp := range qps {
		all = append(all, qp.connection())
	}
	return all
}
