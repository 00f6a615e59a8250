package rdma

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/gate"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/tpt"
)

// Adapter is a software RNIC. An Adapter has ports, memory, the table of access rights
// to that memory, and all objects that the program makes with it. An Adapter is safe
// for concurrent use.
//
// Lock order: the device's lock, which Use takes, comes first. A goroutine must not
// take that lock twice. If a Close waits for the lock when the goroutine takes it the
// second time, both block forever. PD.mu, QP.mu, CQ.mu, Adapter.mu and the heap's lock
// come last. A goroutine that holds one of them takes no other lock of this package.
type Adapter struct {
	// Open sets these fields, and they never change.
	device *adapter.Adapter
	table  *tpt.Table    // table of the device
	board  *signal.Board // board of the device
	log    *slog.Logger
	cfg    Config
	events *events

	through *through // connection to a daemon; nil: the adapter has ports of its own

	lastCQ  atomic.Uint32 // number of the newest CQ
	lastSRQ atomic.Uint32 // number of the newest SRQ
	fatal   logLimit      // limits the log lines about QPs that ended with an error, because a peer can cause them

	attempts gate.Gate    // Dial and Accept
	verbs    gate.Gate    // calls that change objects; a call passes it before the device's lock
	frozen   atomic.Bool  // the adapter is being handed over: no CQ tells of completions
	telling  atomic.Int32 // calls of CQ.news in progress
	left     atomic.Bool  // another process has everything

	handing  atomic.Pointer[HandOver] // HandOver in progress; nil: none
	inherits *succession              // Succeed in progress; nil: none
	files    []*os.File               // descriptors of the last ExportLayer

	mu      sync.Mutex // guards the fields below; no engine takes it
	objects objects
	qps     map[*QP]struct{}
	numbers qpNumbers
	retired totals // counters of closed QPs
	cqs     map[*CQ]struct{}
	srqs    map[*SRQ]struct{}
	loose   map[io.Closer]struct{} // listeners, and requests without an answer
	shut    bool                   // Close has begun; qps and loose accept no new entry
	noPorts error                  // the reason why the adapter has lost its last port; nil: it has a port
}

// Open makes an adapter. The adapter belongs to the network namespace of the calling
// thread for its whole life. Dial and Listen use that namespace, whichever thread calls
// them. The caller must close the adapter.
func Open(cfg Config) (*Adapter, error) {
	if cfg.Daemon != "" {
		return openThrough(cfg)
	}
	a, device := newAdapter(cfg)
	d, err := adapter.Open(device, layer{a})
	if err != nil {
		return nil, err
	}
	a.standOn(d)
	return a, nil
}

// newAdapter makes an adapter without a device, and the configuration of its device.
func newAdapter(cfg Config) (*Adapter, adapter.Config) {
	a := &Adapter{
		cfg: cfg, events: newEvents(), fatal: logLimit{burst: 10},
		qps: map[*QP]struct{}{}, retired: totals{}, cqs: map[*CQ]struct{}{}, srqs: map[*SRQ]struct{}{}, loose: map[io.Closer]struct{}{},
	}
	device := cfg.device()
	device.Notify = a.notify
	return a, device
}

// standOn gives the adapter its device.
func (a *Adapter) standOn(d *adapter.Adapter) {
	a.device, a.table, a.board, a.log = d, d.Table(), d.Board(), d.Config().Log
	a.cfg.KernelPort = d.Config().KernelPort // the choice of Open
	if d.Heap().File() != nil {
		a.keepObjects()
	}
}

// Close closes all objects of the adapter: listeners, connections (with a reset), QPs
// and CQs, regions, ports. When Close returns, no goroutine of the adapter runs, and
// the adapter accesses no registered memory any more. Memory from AllocMR stays valid
// until its region is closed too. A region that is never closed keeps the heap mapped
// until the process ends. Close may be called twice.
func (a *Adapter) Close() error {
	err := a.device.Close()
	if a.through != nil {
		err = errors.Join(err, a.through.close())
	}
	return err
}

// Report returns the current state of the adapter and of its objects. `stag show` and
// `stag metrics` print the same data. Report asks each engine for its part in a few
// short calls between steps. Report blocks no other goroutine. Report returns ErrClosed
// from the moment when Close begins.
func (a *Adapter) Report(ctx context.Context) (report.Engine, error) {
	return a.device.Report(ctx, report.AllParts)
}

// Capture calls f with the packets that the adapter's engines receive and send from now
// on. The first call comes at once with an empty batch and says that the capture has
// begun. Each later call brings packets. A capture ends when ctx ends, when f fails, or
// when the adapter is closed. Once it has begun, Capture returns an error only if f
// fails or every engine fails.
//
// While f runs, the adapter keeps further packets, up to 8 MiB for each queue (less
// with more than eight queues). Packets that do not fit are lost and counted, because
// engines do not wait for f. The packets of several queues come in the order of their
// times. The first packet of a connection comes with the values that the two ends
// agreed on before the connection was taken over (Batch.Streams).
//
// With filter.Flow or filter.QP, the packets of that flow are captured at every port
// where they arrive, unless filter.Device names one. With KernelPort the kernel handles
// the packets, and Capture cannot see them. Errors: tap.ErrTooMany, ErrClosed.
func (a *Adapter) Capture(ctx context.Context, filter report.Filter, f func(report.Batch) error) error {
	return a.device.Capture(ctx, filter, f)
}

// hold registers an object that Close must close. hold returns false if Close has
// begun.
func (a *Adapter) hold(c io.Closer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.shut {
		a.loose[c] = struct{}{}
	}
	return !a.shut
}

// withoutPorts returns the reason why the adapter has lost its last port. withoutPorts
// returns nil if the adapter has a port.
func (a *Adapter) withoutPorts() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.noPorts
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

// layer is the device's view of the verbs. The device calls the methods of layer
// already during adapter.Open. The methods must not use fields that Open sets after
// that call.
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
