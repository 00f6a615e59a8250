package afxdp

import (
	"fmt"

	"github.com/stag-rdma/stag/afxdp/ring"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/undo"
	"golang.org/x/sys/unix"
)

// Mode is how frames get between the interface and the arena.
type Mode uint8

const (
	ModeCopy     Mode = iota // the kernel copies
	ModeZeroCopy             // the driver reads and writes them in place
)

func (m Mode) String() string {
	if m == ModeZeroCopy {
		return "zero-copy"
	}
	return "copy"
}

// Info is what Open found out. It does not change.
type Info struct {
	IfName  string
	Ifindex int
	Queue   uint16
	Mode    Mode
	// NoZeroCopy is why zero copy was tried and is not used; nil otherwise.
	NoZeroCopy error
	// TxBudget is how many frames one kick moves in copy mode.
	TxBudget uint32
	// SendBuffer is the socket's send buffer in octets, as the kernel counts.
	SendBuffer uint32
	// Pages is the kind of memory that the frames lie in.
	Pages Pages
}

// Queue is one queue of an interface. It implements port.Port: all methods
// belong to the queue's own goroutine, Close included, except Wake and what
// never changes (FD, Info, Mode, Limits).
type Queue struct {
	// Fixed by Open.
	cfg   Config // complete
	info  Info
	name  string // for messages: "eth1 queue 0"
	fd    int    // the socket; -1 after Close
	mem   []byte // the whole arena; nil after Close
	base  uint64 // arena offset of our region
	size  uint64 // octets in our region
	shift uint8  // log2 of the chunk size
	down  error  // what to return for ErrLinkDown and ErrGone
	gone  error
	sys   func(nr uintptr) unix.Errno // trap; tests put a script in its place
	undo  undo.Stack

	// Owned by the queue's goroutine.
	fill   ring.Producer[uint64]
	comp   ring.Consumer[uint64]
	rx     ring.Consumer[unix.XDPDesc]
	tx     ring.Producer[unix.XDPDesc]
	state  []holders // by chunk
	begin  []uint16  // by receive chunk: where its packet began in it
	rxPool []uint32  // stacks of chunk numbers: the last one used is the warmest
	txPool []uint32
	level  int  // chunks that the fill ring is kept at in copy mode; 0: not filled yet
	flying int  // transmit chunks with the kernel
	brim   brim // how many of them the device's own queue takes
	short  bool // Take or Send fell short, and no completion was reaped since
	count  Stats
	trace  *trace // nil unless Config.Check
	naps   naps

	// Rung by any goroutine.
	bell bell
}

var _ port.Port = (*Queue)(nil)

// FD is the socket's descriptor, for the XDP program's map. It stays the
// queue's, and is valid until Close.
func (q *Queue) FD() int { return q.fd }

// Mode reports how frames get to and from the interface.
func (q *Queue) Mode() Mode { return q.info.Mode }

// Info reports what Open found out.
func (q *Queue) Info() Info { return q.info }

// Limits is part of port.Port.
func (q *Queue) Limits() port.Limits { return q.cfg.limits() }

// Bytes is part of port.Port. It panics for a frame that does not lie within
// one chunk of the arena.
func (q *Queue) Bytes(f port.Frame) []byte {
	if q.trace != nil {
		if i, ours := q.chunkOf(f.Addr); ours && q.state[i]&held == 0 {
			q.misused(viewed, f)
		}
	}
	end := (f.Addr | (1<<q.shift - 1)) + 1
	return q.mem[f.Addr : f.Addr+uint64(f.Len) : end]
}

// Record is part of port.Port. It serves frames of the whole arena as Bytes does.
func (q *Queue) Record(f port.Frame) []byte {
	if f.Addr&(1<<q.shift-1) < port.RecordLen {
		return nil
	}
	return q.mem[f.Addr-port.RecordLen : f.Addr : f.Addr]
}

// Close ends the queue: it unmaps the rings, closes the socket, and gives the
// region back. The kernel lets go of the interface's queue a little later,
// which Open waits for. All frames are void; the data path finds nothing any
// more, and Flush and Wait return ErrClosed. Closing again does nothing.
func (q *Queue) Close() error {
	if q.fd < 0 {
		return nil
	}
	err := q.detach()
	if err != nil {
		return fmt.Errorf("afxdp: close %s: %w", q.name, err)
	}
	return nil
}

// detach points the queue at nothing and takes back what Open acquired.
func (q *Queue) detach() error {
	q.fd = -1
	q.mem = nil
	q.rxPool, q.txPool = nil, nil
	q.short = false
	clear(q.state)
	q.fill, _ = ring.NewProducer(ring.OnHeap[uint64](1, 0))
	q.comp, _ = ring.NewConsumer(ring.OnHeap[uint64](1, 0))
	q.rx, _ = ring.NewConsumer(ring.OnHeap[unix.XDPDesc](1, 0))
	q.tx, _ = ring.NewProducer(ring.OnHeap[unix.XDPDesc](1, 0))
	return q.undo.Run()
}
