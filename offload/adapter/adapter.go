package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/choice"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/memgroup"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/undo"
	"github.com/stag-rdma/stag/offload/upgrade"
	"github.com/stag-rdma/stag/tpt"
)

// Adapter is an RNIC. An Adapter consists of ports, memory, the table that says which
// connection may use which memory, and the connections of the layers above. An Adapter
// is safe for concurrent use.
type Adapter struct {
	// Open sets these fields, and they never change.
	cfg     Config
	choice  choice.Choice
	log     *slog.Logger
	layers  []Layer
	later   laterLayers // layers that came after Open
	space   *loader.Namespace
	net     *loader.Net // network namespace of the ports; nil with KernelPort
	ways    loader.Recent[loader.Query, loader.Route]
	table   *tpt.Table
	heap    *heap.Heap
	arrays  *loader.Table   // memory of the table; nil with KernelPort or a MemoryGroup
	sharing *memgroup.Group // nil: the adapter shares no memory with other processes
	board   *signal.Board
	tapped  *captures
	moves   moves
	undo    undo.Stack
	control *control.Server // control socket; nil with NoControl
	number  int             // number that tells the process's adapters apart
	inline  bool            // the program's own goroutines run connections
	began   time.Time       // time of Open
	cookie  uint64          // cookie of the adapter's network namespace

	// life ends when Close begins. Its cause is ErrClosed. Dial, Listen and waits end at
	// the same time.
	life context.Context
	die  context.CancelCauseFunc

	lent []*os.File         // files of earlyObjects; portsMu guards them
	from *upgrade.Successor // the process whose connections the adapter continues; nil after Succeed, and for a new adapter

	lot     *kernelport.Lot         // where idle connections over the kernel's TCP wait; nil without KernelPort
	running sync.WaitGroup          // counts goroutines of kernel ports, and goroutines that Go has started
	ports   atomic.Pointer[[]*Port] // ports of the adapter; changing holds portsMu
	groups  groups                  // groups of ports; Open sets it
	portsMu sync.Mutex              // lock that is held while a port is added or removed; taken before busy

	// busy guards the table and the heap. Users of the table and the heap hold it for
	// reading. Close holds it for writing while it frees them. No engine takes busy.
	busy   sync.RWMutex
	closed bool // true when Close has begun; busy guards this field
}

// Open makes an adapter with these layers. The adapter belongs to the network namespace
// of the calling thread. Dial and Listen use that namespace, whichever thread calls
// them. The caller must close the adapter.
func Open(cfg Config, layers ...Layer) (*Adapter, error) {
	a, err := newAdapter(cfg, layers)
	if err != nil {
		return nil, fmt.Errorf("open adapter: %w", err)
	}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("open adapter: %w", errors.Join(err, a.undo.Run()))
	}
	a.watchGroups()
	return a, nil
}

// newAdapter makes an adapter that open prepares.
func newAdapter(cfg Config, layers []Layer) (*Adapter, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	a := &Adapter{
		cfg: cfg, log: cfg.Log, layers: layers, board: new(signal.Board), tapped: newCaptures(), began: time.Now().Round(0),
	}
	a.life, a.die = context.WithCancelCause(context.Background())
	return a, nil
}

func (a *Adapter) open() (err error) {
	if a.space, err = loader.CurrentNamespace(); err != nil {
		return err
	}
	a.undo.Add(a.space.Close)
	if err := a.chooseCarrier(); err != nil {
		return err
	}
	if err := a.openCarrier(); err != nil {
		return a.notHad(err)
	}
	a.sayChoice()
	return a.openControl()
}

// openCarrier makes the table, and what carries connections.
func (a *Adapter) openCarrier() (err error) {
	if err := a.openTable(); err != nil {
		return err
	}
	if a.cfg.KernelPort {
		if a.lot, err = kernelport.NewLot(); err != nil {
			return err
		}
		a.undo.Add(a.lot.Close)
	}
	if err := a.openPorts(); err != nil {
		return err
	}
	return a.openGroups()
}

// openTable makes the heap and the table.
func (a *Adapter) openTable() (err error) {
	if a.cfg.MemoryGroup != "" {
		return a.openShared()
	}
	if err := a.openHeap(); err != nil {
		return err
	}
	c := a.tableConfig()
	if c.Memory, c.PageMemory, err = a.tableMemory(); err != nil {
		return err
	}
	if a.inheritsTable() {
		c.Keep, c.Entries, c.Pages = true, 0, 0 // as many as the memory has
	}
	a.table, err = tpt.New(c)
	return err
}

// tableConfig returns what the table's configuration is, without the table's memory.
func (a *Adapter) tableConfig() tpt.Config {
	return tpt.Config{
		Entries: a.cfg.entries(), Pages: a.cfg.pages(),
		Heap: a.heap.Memory(), PerPD: uint32(a.cfg.MaxRegionsPerPD), PagesPerPD: uint32(a.cfg.MaxPagesPerPD),
	}
}

// tableMemory returns the memory for the table and for its page lists. The memory is two
// BPF arrays, which tools and programs can read. With KernelPort tableMemory returns nil,
// and the table allocates its own memory. If a port is loaded, the arrays stay in the
// port's instance after Close.
func (a *Adapter) tableMemory() (entries, pages []byte, err error) {
	if a.cfg.KernelPort {
		return nil, nil, nil
	}
	if err := a.expandBonds(); err != nil {
		return nil, nil, err
	}
	t, err := a.openArrays()
	if err != nil {
		return nil, nil, err
	}
	a.arrays = t
	a.undo.Add(t.Close)
	return t.Memory(), t.PageMemory(), nil
}

// Close ends the connections of the adapter's layers (with a reset), captures, regions
// and ports. When Close returns, no goroutine of the adapter runs and no registered
// memory is accessed any more. Memory of the heap stays mapped while a part of it is
// handed out. Close may be called twice.
func (a *Adapter) Close() error {
	a.die(ErrClosed)
	for _, l := range a.layers {
		l.CloseConnections()
	}
	a.running.Wait()
	a.tapped.end() // captures end after the connections, whose resets are the last packets
	err := a.closeControl()
	a.busy.Lock()
	defer a.busy.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return errors.Join(err, a.undo.Run())
}

// Use lets the caller use the table and the heap until the caller calls done. Use
// returns ErrClosed if the adapter is closed.
func (a *Adapter) Use() (done func(), err error) {
	a.busy.RLock()
	if a.closed || a.life.Err() != nil {
		a.busy.RUnlock()
		return nil, fmt.Errorf("the adapter is %w", ErrClosed)
	}
	return a.busy.RUnlock, nil
}

// Life returns a context that ends when Close begins. The cause is ErrClosed.
func (a *Adapter) Life() context.Context { return a.life }

// While returns a context that ends when ctx ends or when Close begins. If Close ends the
// context, the cause is ErrClosed.
func (a *Adapter) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.life, func() { cancel(context.Cause(a.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Go runs f on a goroutine that Close waits for.
func (a *Adapter) Go(f func()) { a.running.Go(f) }

// Table returns the table that says which connection may use which memory. Two kinds of
// callers may use the table: connections that were taken over, and callers between Use
// and done.
func (a *Adapter) Table() *tpt.Table { return a.table }

// Heap returns the heap from which the adapter hands out memory for regions.
func (a *Adapter) Heap() *heap.Heap { return a.heap }

// Board returns the board for signals of connections. A step of a connection raises
// signals. The board delivers them after the step.
func (a *Adapter) Board() *signal.Board { return a.board }

// Number returns the number that tells the process's adapters apart.
func (a *Adapter) Number() int { return a.number }

// Config returns the configuration of the adapter, with defaults filled in.
func (a *Adapter) Config() Config { return a.cfg }

// Ports returns the network interfaces of the adapter. With KernelPort there are none.
func (a *Adapter) Ports() []*Port {
	if list := a.ports.Load(); list != nil {
		return *list
	}
	return nil
}
