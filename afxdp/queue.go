package afxdp

import (
	"fmt"

	"github.com/stag-rdma/stag/afxdp/ring"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/undo"
	"golang.org/x/sys/unix"
)

// Mode says whether the kernel copies frames.
type Mode uint8

const (
	ModeCopy     Mode = iota // the kernel copies frames between the interface and the arena
	ModeZeroCopy             // the driver reads and writes frames in the arena
)

func (m Mode) String() string {
	if m == ModeZeroCopy {
		return "zero-copy"
	}
	return "copy"
}

// Info describes an open queue. Its values do not change after Open.
type Info struct {
	IfName  string
	Ifindex int
	Queue   uint16
	Mode    Mode
	// NoZeroCopy is the driver's error if zero copy was allowed but failed, else nil.
	NoZeroCopy error
	// Sums says that Send accepts packets without a complete TCP checksum.
	Sums bool
	// NoSums is the kernel's error if Config.Sums was set but the kernel has no transmit
	// metadata, else nil.
	NoSums error
	// TxBudget is the largest number of frames that one system call sends in copy mode.
	TxBudget uint32
	// SendBuffer is the socket's send buffer in octets of the kernel's accounting.
	SendBuffer uint32
	// Pages is the kind of memory pages of the arena.
	Pages Pages
}

// Queue is one queue of an interface. It implements port.Port. Only the queue's own
// goroutine may call its methods, including Close. Any goroutine may call Wake and the
// methods whose result never changes (FD, Info, Mode, Limits).
type Queue struct {
	// These fields do not change after Open.
	cfg   Config // all defaults are filled in
	info  Info
	name  string                      // "eth1 queue 0", for messages
	fd    int                         // the socket, or -1 after Close
	mem   []byte                      // the whole arena, or nil after Close
	base  uint64                      // arena offset of this queue's region
	size  uint64                      // number of octets of the region that the queue uses
	shift uint8                       // log2 of the chunk size
	meta  bool                        // the kernel reads transmit metadata in front of packets
	down  error                       // an error that names the queue and wraps ErrLinkDown
	gone  error                       // an error that names the queue and wraps ErrGone
	sys   func(nr uintptr) unix.Errno // the function that makes system calls: trap, or a test's replacement of trap
	undo  undo.Stack
	maps  undo.Stack // unmaps the rings

	// The queue's goroutine owns these fields.
	fill   ring.Producer[uint64]
	comp   ring.Consumer[uint64]
	rx     ring.Consumer[unix.XDPDesc]
	tx     ring.Producer[unix.XDPDesc]
	state  []holders // owners of each chunk
	begin  []uint16  // offset of the packet in each receive chunk
	rxPool []uint32  // stack of free receive chunks: the chunk used last is most likely still in the cache
	txPool []uint32  // stack of free transmit chunks
	level  int       // number of entries to keep in the fill ring in copy mode; 0 before the first refill
	flying int       // number of transmit chunks that the kernel owns
	brim   brim      // limit of packets that the device holds
	short  bool      // Take, Room or Send ran short, and no completion was reaped since
	count  Stats
	trace  *trace // nil without Config.Check
	sleeps sleeps

	// Any goroutine may use bell.ring.
	bell bell
}

var _ port.Port = (*Queue)(nil)

// FD returns the socket's descriptor, for the XDP program's map. The queue owns the
// descriptor, which is valid until Close.
func (q *Queue) FD() int { return q.fd }

// Mode returns whether the kernel copies frames.
func (q *Queue) Mode() Mode { return q.info.Mode }

// Info returns the properties of the queue as Open found them.
func (q *Queue) Info() Info { return q.info }

// Limits implements port.Port.
func (q *Queue) Limits() port.Limits {
	l := q.cfg.limits()
	l.Sums = q.info.Sums
	return l
}

// Bytes implements port.Port. It panics if the frame does not lie within one chunk of
// the arena.
func (q *Queue) Bytes(f port.Frame) []byte {
	if q.trace != nil {
		if i, ours := q.chunkOf(f.Addr); ours && q.state[i]&held == 0 {
			q.misused(viewed, f)
		}
	}
	end := (f.Addr | (1<<q.shift - 1)) + 1
	return q.mem[f.Addr : f.Addr+uint64(f.Len) : end]
}

// Record implements port.Port. It accepts frames of every queue of the arena, as Bytes
// does.
func (q *Queue) Record(f port.Frame) []byte {
	if f.Addr&(1<<q.shift-1) < port.RecordLen {
		return nil
	}
	return q.mem[f.Addr-port.RecordLen : f.Addr : f.Addr]
}

// Close unmaps the rings, closes the socket and releases the region. The kernel
// releases the interface's queue a little later, and Open waits for that. All frames of
// the queue become invalid. After Close, Receive, Take and Send return 0, and Flush and
// Wait return ErrClosed. A second Close does nothing.
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

// detach empties the queue and undoes the steps of Open.
func (q *Queue) detach() error {
	q.fd = -1
	q.mem = nil
	q.rxPool, q.txPool = nil, nil
	q.short = false
	clear(q.state)
	q.unplugRings()
	return q.undo.Run()
}

// unplugRings replaces the rings by empty ones that no kernel reads.
func (q *Queue) unplugRings() {
	q.fill, _ = ring.NewProducer(ring.OnHeap[uint64](1, 0))
	q.comp, _ = ring.NewConsumer(ring.OnHeap[uint64](1, 0))
	q.rx, _ = ring.NewConsumer(ring.OnHeap[unix.XDPDesc](1, 0))
	q.tx, _ = ring.NewProducer(ring.OnHeap[unix.XDPDesc](1, 0))
}
