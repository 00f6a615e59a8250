package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/bpf"
)

// FlowID names a flow of one adapter. An id is not given out again before the
// generation of its slot has come round.
type FlowID = bpf.FlowID

// MaxFlows is how many flows an adapter can have at a time.
const MaxFlows = 1 << bpf.FlowIndexBits

// nextID is the id that slot i gets after id. Generation 0 is never used, so
// that no id is 0.
func nextID(i int, id FlowID) FlowID {
	gen := (id.Generation() + 1) % (1 << (32 - bpf.FlowIndexBits))
	return bpf.NewFlowID(uint32(i), max(gen, 1))
}

// ErrFlowsFull is returned by Reserve when every slot is taken.
var ErrFlowsFull = errors.New("flow table full")

// Directory says which engine owns which flow, and has the memory that flows may
// use besides frames. It is shared by all engines of an adapter: Reserve, Assign and Free are called on the control path by any
// goroutine; owner is read by engines without a lock.
type Directory struct {
	slots []atomic.Uint64 // FlowID in the low half, owner above; 0: free
	slabs *slabs          // what the flows of all engines may keep outside of frames

	mu    sync.Mutex // guards what follows; never taken by Step
	ids   []FlowID   // by index: the id that the slot has or gets next
	free  []int32    // ring of free indices: first in, first out, so that generations last
	head  int        // next to give out
	count int        // how many of the ring are set
}

// NewDirectory makes a directory of n flows, 1 to MaxFlows.
func NewDirectory(n int) (*Directory, error) {
	if n < 1 || n > MaxFlows {
		return nil, fmt.Errorf("flow table of %d entries: choose 1 to %d", n, MaxFlows)
	}
	slabs, err := newSlabs(SlabMemory)
	if err != nil {
		return nil, err
	}
	d := &Directory{
		slabs: slabs,
		slots: make([]atomic.Uint64, n),
		ids:   make([]FlowID, n),
		free:  make([]int32, n),
		count: n,
	}
	for i := range n {
		d.ids[i] = nextID(i, 0)
		d.free[i] = int32(i)
	}
	return d, nil
}

// Len is how many flows the directory has room for.
func (d *Directory) Len() int { return len(d.slots) }

// Reserve takes a flow id, without an owner yet.
func (d *Directory) Reserve() (FlowID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 {
		return 0, fmt.Errorf("%w: %d flows are open", ErrFlowsFull, len(d.slots))
	}
	i := d.free[d.head]
	d.head = (d.head + 1) % len(d.free)
	d.count--
	id := d.ids[i]
	d.slots[i].Store(pack(id, bpf.NoOwner))
	return id, nil
}

// Assign makes queue the owner of id.
func (d *Directory) Assign(id FlowID, queue uint16) {
	d.slots[id.Index()].Store(pack(id, queue))
}

// Free gives id back.
func (d *Directory) Free(id FlowID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := int(id.Index())
	if d.ids[i] != id || d.slots[i].Load() == 0 {
		return
	}
	d.slots[i].Store(0)
	d.ids[i] = nextID(i, id)
	d.free[(d.head+d.count)%len(d.free)] = int32(i)
	d.count++
}

// owner reports the queue that owns id, and whether id is in use at all.
func (d *Directory) owner(id FlowID) (queue uint16, ok bool) {
	i := int(id.Index())
	if i >= len(d.slots) {
		return 0, false
	}
	v := d.slots[i].Load()
	return uint16(v >> 32), FlowID(v) == id && v != 0
}

func pack(id FlowID, queue uint16) uint64 { return uint64(queue)<<32 | uint64(id) }
