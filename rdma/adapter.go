package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/undo"
	"github.com/stag-rdma/stag/tpt"
)

// Adapter is what an RNIC is: ports, memory, a table that says who may use
// which of it, and everything that is made of them. It is safe for concurrent
// use.
//
// The order of locks: Adapter.busy comes first, and no goroutine takes it a
// second time, because a Close that waits in between would stop both. PD.mu,
// QP.mu, CQ.mu, Adapter.mu and that of the heap come last: a goroutine that holds one of
// them takes no other lock of this package.
type Adapter struct {
	// Fixed after Open.
	cfg     Config
	log     *slog.Logger
	space   *loader.Namespace
	net     *loader.Net // nil with KernelPort
	ways    loader.Recent[loader.Query, loader.Route]
	ports   []*port // none with KernelPort
	table   *tpt.Table
	heap    *heap.Heap
	board   *signal.Board
	events  *events
	tapped  *captures
	undo    undo.Stack
	control *control.Server // nil with NoControl
	number  int             // tells the process's adapters apart
	inline  bool            // who posts and polls does the work
	began   time.Time       // when it was opened
	cookie  uint64          // of its network namespace

	// life ends, with ErrClosed, when Close begins: whoever dials, listens or
	// waits then stops.
	life context.Context
	die  context.CancelCauseFunc

	running sync.WaitGroup // goroutines of kernel ports
	lastCQ  atomic.Uint32  // number of the last CQ that was made
	fatal   logLimit       // of lines about QPs that ended badly: peers can provoke them

	// busy is held to read by every verb that uses the table or the heap, and
	// to write when they are taken away. No engine takes it.
	busy   sync.RWMutex
	closed bool // under busy

	mu      sync.Mutex // guards what follows; no engine takes it
	qps     map[*QP]struct{}
	numbers qpNumbers
	retired totals // of QPs that are closed
	cqs     map[*CQ]struct{}
	loose   map[io.Closer]struct{} // listeners, and requests that have no answer yet
	shut    bool                   // neither takes anything in any more
	lost    int                    // ports that are of no use any more
}

// Open makes an adapter. It belongs to the network namespace of the calling
// thread, and stays bound to it: Dial and Listen happen there, whichever
// thread calls them. The caller closes it.
func Open(cfg Config) (*Adapter, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("open adapter: %w", err)
	}
	a := &Adapter{
		cfg: cfg, log: cfg.Log, board: new(signal.Board), events: newEvents(), tapped: newCaptures(),
		qps: map[*QP]struct{}{}, retired: totals{}, cqs: map[*CQ]struct{}{}, fatal: logLimit{burst: 10}, loose: map[io.Closer]struct{}{}, began: time.Now().Round(0),
	}
	a.life, a.die = context.WithCancelCause(context.Background())
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("open adapter: %w", errors.Join(err, a.undo.Run()))
	}
	return a, nil
}

func (a *Adapter) open() (err error) {
	if a.space, err = loader.CurrentNamespace(); err != nil {
		return err
	}
	a.undo.Add(a.space.Close)
	if a.heap, err = heap.New(a.cfg.RegionHeap); err != nil {
		return err
	}
	a.undo.Add(a.heap.Close)
	memory, err := a.tableMemory()
	if err != nil {
		return err
	}
	a.table, err = tpt.New(tpt.Config{Entries: a.cfg.entries(), Memory: memory, Heap: a.heap.Memory(), PerPD: uint32(a.cfg.MaxRegionsPerPD)})
	if err != nil {
		return err
	}
	if err := a.openPorts(); err != nil {
		return err
	}
	return a.openControl()
}

// tableMemory is what the table lies in: a BPF array, which tools and programs
// can read, or with KernelPort memory of the table's own. The array stays in the
// instance of a port that is loaded.
func (a *Adapter) tableMemory() ([]byte, error) {
	if a.cfg.KernelPort {
		return nil, nil
	}
	pin, err := a.tablePin()
	if err != nil {
		return nil, err
	}
	t, err := loader.NewTable(a.cfg.entries(), pin)
	if err != nil {
		return nil, err
	}
	a.undo.Add(t.Close)
	return t.Memory(), nil
}

// Close ends everything of the adapter: listeners, connections (with a reset),
// QPs and CQs, regions, ports. When it returns nothing of it runs, and no
// memory that was registered is accessed any more. Memory from AllocMR stays as it
// is until its region is closed too; regions that nobody closes keep the heap
// until the process ends. It may be called twice.
func (a *Adapter) Close() error {
	a.die(ErrClosed)
	for _, c := range a.takeLoose() {
		c.Close()
	}
	for _, qp := range a.allQPs() {
		qp.Close()
	}
	a.running.Wait()
	a.tapped.end() // with the resets of the connections
	err := a.closeControl()
	a.busy.Lock()
	defer a.busy.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return errors.Join(err, a.undo.Run())
}

// use lets a verb use the table and the heap until it calls done. ErrClosed.
func (a *Adapter) use() (done func(), err error) {
	a.busy.RLock()
	if a.closed || a.life.Err() != nil {
		a.busy.RUnlock()
		return nil, fmt.Errorf("the adapter is %w", ErrClosed)
	}
	return a.busy.RUnlock, nil
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

// while is ctx, but ends with ErrClosed when the adapter is being closed.
func (a *Adapter) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.life, func() { cancel(context.Cause(a.life)) })
	return ctx, func() { stop(); cancel(nil) }
}
