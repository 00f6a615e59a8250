package afxdp

import (
	"fmt"

	"github.com/stag-rdma/stag/afxdp/ring"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/undo"
	"golang.org/x/sys/unix"
)

// Mode is how frames move between the interface and the arena.
type Mode uint8

const (
	ModeCopy     Mode = iota // the kernel copies
	ModeZeroCopy             // the driver reads and writes frames in place
)

func (m Mode) String() string {
	if m == ModeZeroCopy {
		return "zero-copy"
	}
	return "copy"
}

// Info describes an open queue. It does not change after Open.
type Info struct {
	IfName  string
	Ifindex int
	Queue   uint16
	Mode    Mode
	// NoZeroCopy is the driver's error if Open tried zero copy in vain; otherwise nil.
	NoZeroCopy error
	// TxBudget is how many frames one kick moves in copy mode.
	TxBudget uint32
	// SendBuffer is the socket's send buffer in octets, as the kernel accounts for them.
	SendBuffer uint32
	// Pages is the kind of memory of the arena.
	Pages Pages
}

// Queue is one queue of an interface. It implements port.Port. One goroutine,
// the queue's own, calls all methods, Close included. Any goroutine may call Wake
// and the methods whose result never changes (FD, Info, Mode, Limits).
type Queue struct {
	// Fixed by Open.
	cfg   Config // with every default filled in
	info  Info
	name  string                      // for messages: "eth1 queue 0"
	fd    int                         // the socket; -1 after Close
	mem   []byte                      // the whole arena; nil after Close
	base  uint64                      // arena offset of this queue's region
	size  uint64                      // octets of this queue's region in use
	shift uint8                       // log2 of the chunk size
	down  error                       // wraps ErrLinkDown and names the queue
	gone  error                       // wraps ErrGone and names the queue
	sys   func(nr uintptr) unix.Errno // trap; tests replace it by a script
	undo  undo.Stack

	// Owned by the queue's goroutine.
	fill   ring.Producer[uint64]
	comp   ring.Consumer[uint64]
	rx     ring.Consumer[unix.XDPDesc]
	tx     ring.Producer[unix.XDPDesc]
	state  []holders // by chunk
	begin  []uint16  // by receive chunk: offset of its packet in the chunk
	rxPool []uint32  // a stack of chunk numbers: the last chunk used is most likely in the cache
	txPool []uint32  // a stack as rxPool is
	level  int       // target of entries in the fill ring in copy mode; 0: not filled yet
	flying int       // transmit chunks with the kernel
	brim   brim      // limit of packets in the device's own queue
	short  bool      // Take, Room or Send fell short, and no completion was reaped since
	count  Stats
	trace  *trace // nil unless Config.Check
	naps   naps

	// Any goroutine may ring it.
	bell bell
}

var _ port.Port = (*Queue)(nil)

// FD returns the socket's descriptor, for the XDP program's map. The queue owns
// the descriptor. It is valid until Close.
func (q *Queue) FD() int { return q.fd }

// Mode returns how frames move between the interface and the arena.
func (q *Queue) Mode() Mode { return q.info.Mode }

// Info describes the queue as Open made it.
func (q *Queue) Info() Info { return q.info }

// Limits is part of port.Port.
func (q *Queue) Limits() port.Limits { return q.cfg.limits() }

// Bytes is part of port.Port. It panics if the frame does not lie within one
// chunk of the arena.
func (q *Queue) Bytes(f port.Frame) []byte {
	if q.trace != nil {
		if i, ours := q.chunkOf(f.Addr); ours && q.state[i]&held == 0 {
			q.misused(viewed, f)
		}
	}
	end := (f.Addr | (1<<q.shift - 1)) + 1
	return q.mem[f.Addr : f.Addr+uint64(f.Len) : end]
}

// Record is part of port.Port. It accepts frames of every queue of the arena, as
// Bytes does.
func (q *Queue) Record(f port.Frame) []byte {
	if f.Addr&(1<<q.shift-1) < port.RecordLen {
		return nil
	}
	return q.mem[f.Addr-port.RecordLen : f.Addr : f.Addr]
}

// Close unmaps the rings, closes the socket and gives the region back. The
// kernel releases the interface's queue a little later; Open waits for that.
// Every frame of the queue becomes invalid. Afterwards Receive, Take and Send
// return 0, and Flush and Wait return ErrClosed. Closing again does nothing.
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
	q.fill, _ = ring.NewProducer(ring.OnHeap[uint64](1, 0))
	q.comp, _ = ring.NewConsumer(ring.OnHeap[uint64](1, 0))
	q.rx, _ = ring.NewConsumer(ring.OnHeap[unix.XDPDesc](1, 0))
	q.tx, _ = ring.NewProducer(ring.OnHeap[unix.XDPDesc](1, 0))
	return q.undo.Run()
}
