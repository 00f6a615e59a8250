package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/port"
)

// FlowID identifies a flow of one adapter. An id is not used again before the generation counter of its slot has
// wrapped.
type FlowID = bpf.FlowID

// Lane is the number of an engine of the adapter, as in package port.
type Lane = port.Lane

// noLane is the owner of a flow that no engine owns yet.
const noLane = Lane(bpf.NoOwner)

// MaxFlows is how many flows an adapter can have at a time.
const MaxFlows = 1 << bpf.FlowIndexBits

// nextID returns the id that slot i gets after id. Generation 0 is never used, so that no id is 0.
func nextID(i int, id FlowID) FlowID {
	gen := (id.Generation() + 1) % (1 << (32 - bpf.FlowIndexBits))
	return bpf.NewFlowID(uint32(i), max(gen, 1))
}

// ErrFlowsFull is returned by Reserve when no slot is free.
var ErrFlowsFull = errors.New("flow table full")

// Directory maps flows to the lanes whose engines own them. Directory also has the memory that flows may use in
// addition to frames. All engines of an adapter share one Directory. Any goroutine may call Reserve, Move and
// Free, on the control path. Engines call Find and ByKey, which take no lock.
type Directory struct {
	slots []slot
	heads []atomic.Uint32 // for each hash of a key, the first slot of its chain: index plus 1
	seed  maphash.Seed    // seed of the hash, so that a peer cannot choose keys of one chain
	turns atomic.Uint64   // a counter that rises before and after a change of a chain
	slabs *slabs          // memory outside of frames, for the flows of all engines

	mu    sync.Mutex // guards the fields below; Step never takes it
	ids   []FlowID   // by index: the present id of the slot, or the next one
	free  []int32    // ring of free indices, first in first out, so that generations wrap late
	head  int        // position of the next index to use
	count int        // number of valid entries of the ring
}

// slot is the entry of one flow in the directory.
type slot struct {
	state atomic.Uint64             // the word that packed returns; 0: free
	key   [keyLen / 8]atomic.Uint64 // key of the flow; written while state is 0
	next  atomic.Uint32             // the next slot of the chain: index plus 1
}

const keyLen = 40 // length of a bpf.FlowKey in octets

// packed returns a slot's state in one word. The word contains the flow's id, the lane that owns the flow, and the
// lane that parks the flow's segments as long as no lane owns the flow.
func packed(id FlowID, owner, parks Lane) uint64 {
	return uint64(parks)<<48 | uint64(owner)<<32 | uint64(id)
}

func idIn(state uint64) FlowID  { return FlowID(state) }
func ownerIn(state uint64) Lane { return Lane(state >> 32) }
func parksIn(state uint64) Lane { return Lane(state >> 48) }

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
		slots: make([]slot, n),
		heads: make([]atomic.Uint32, powerOfTwo(n)),
		seed:  maphash.MakeSeed(),
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

// Len returns how many flows the directory has room for.
func (d *Directory) Len() int { return len(d.slots) }

// Reserve reserves a flow id for the flow with this key. The flow has no owner yet. If two flows have the same key,
// ByKey returns the second one. Reserve returns ErrFlowsFull if no slot is free.
func (d *Directory) Reserve(key bpf.FlowKey) (FlowID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 {
		return 0, fmt.Errorf("%w: %d flows are open", ErrFlowsFull, len(d.slots))
	}
	words := wordsOf(&key)
	head := d.chain(&words)
	i := d.free[d.head]
	d.head = (d.head + 1) % len(d.free)
	d.count--
	id := d.ids[i]
	s := &d.slots[i]
	for w := range words {
		s.key[w].Store(words[w])
	}
	d.turns.Add(1)
	s.next.Store(head.Load())
	head.Store(uint32(i) + 1)
	d.turns.Add(1)
	s.state.Store(packed(id, noLane, noLane))
	return id, nil
}

// Move makes the engine of a lane the owner of id, which must be in use.
func (d *Directory) Move(id FlowID, to Lane) error {
	return d.change(id, func(state uint64) uint64 { return packed(id, to, parksIn(state)) })
}

// parks makes lane the lane that parks the segments of id, unless another lane already does.
func (d *Directory) parks(id FlowID, lane Lane) error {
	return d.change(id, func(state uint64) uint64 {
		if parksIn(state) != noLane {
			return state
		}
		return packed(id, ownerIn(state), lane)
	})
}

// change replaces the state of id. change returns ErrNoFlow if id is not in use.
func (d *Directory) change(id FlowID, to func(state uint64) uint64) error {
	if int(id.Index()) >= len(d.slots) {
		return fmt.Errorf("flow %#x: %w", uint32(id), ErrNoFlow)
	}
	s := &d.slots[id.Index()].state
	for {
		state := s.Load()
		if idIn(state) != id || state == 0 {
			return fmt.Errorf("flow %#x: %w", uint32(id), ErrNoFlow)
		}
		if s.CompareAndSwap(state, to(state)) {
			return nil
		}
	}
}

// Free frees id.
func (d *Directory) Free(id FlowID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := int(id.Index())
	if i >= len(d.ids) || d.ids[i] != id || d.slots[i].state.Load() == 0 {
		return
	}
	d.slots[i].state.Store(0)
	d.unlink(uint32(i) + 1)
	d.ids[i] = nextID(i, id)
	d.free[(d.head+d.count)%len(d.free)] = int32(i)
	d.count++
}

// unlink removes a slot from its chain.
func (d *Directory) unlink(place uint32) {
	words := d.slots[place-1].words()
	link := d.chain(&words)
	for link.Load() != place {
		link = &d.slots[link.Load()-1].next
	}
	d.turns.Add(1)
	link.Store(d.slots[place-1].next.Load())
	d.turns.Add(1)
}

// Find returns the key of flow id and the lane that owns it. If no lane owns the flow yet, Find returns the lane
// that parks its segments. ok is false if no such flow is open, or no lane parks it yet. Find takes no lock.
func (d *Directory) Find(id FlowID) (key bpf.FlowKey, at Lane, ok bool) {
	state, ok := d.state(id)
	if !ok {
		return key, 0, false
	}
	s := &d.slots[id.Index()]
	words := s.words()
	if idIn(s.state.Load()) != id {
		return key, 0, false // the slot has been freed meanwhile
	}
	at = placeIn(state)
	return keyIn(&words), at, at != noLane
}

// ByKey returns the flow with this key, and the lane that Find would return for that flow. ByKey takes no lock. An
// engine calls ByKey for a packet that has no steering record and belongs to a flow of another engine.
func (d *Directory) ByKey(key *bpf.FlowKey) (id FlowID, at Lane, ok bool) {
	words := wordsOf(key)
	head := d.chain(&words)
	place := d.search(head, &words)
	if place == 0 {
		return 0, 0, false
	}
	state := d.slots[place-1].state.Load()
	if have := d.slots[place-1].words(); have != words || state == 0 {
		return 0, 0, false // the slot has been freed meanwhile
	}
	at = placeIn(state)
	return idIn(state), at, at != noLane
}

// searches is how often search tries again if chains change during the search.
const searches = 4

// search returns the slot with a key in a chain, as its index plus 1. search returns 0 if there is none. If the
// chain changes during the search, search may follow links into another chain. search then tries again, a few
// times. If search still does not find the flow of a packet, the packet is lost, and the peer sends it again.
func (d *Directory) search(head *atomic.Uint32, words *[keyLen / 8]uint64) (place uint32) {
	for range searches {
		before := d.turns.Load()
		place = head.Load()
		for steps := 0; place != 0 && steps < len(d.slots); steps++ {
			s := &d.slots[place-1]
			if s.words() == *words {
				return place
			}
			place = s.next.Load()
		}
		if d.turns.Load() == before {
			return 0
		}
	}
	return 0
}

// chain returns the chain for a key.
func (d *Directory) chain(words *[keyLen / 8]uint64) *atomic.Uint32 {
	var b [keyLen]byte
	for i, w := range words {
		binary.NativeEndian.PutUint64(b[8*i:], w)
	}
	return &d.heads[maphash.Bytes(d.seed, b[:])&uint64(len(d.heads)-1)]
}

// owner returns the lane that owns id, or noLane if no lane owns it yet. ok says whether id is in use.
func (d *Directory) owner(id FlowID) (lane Lane, ok bool) {
	state, ok := d.state(id)
	return ownerIn(state), ok
}

// ownerAt is owner for the flow that has the slot now.
func (d *Directory) ownerAt(index int) (lane Lane, ok bool) {
	state := d.slots[index].state.Load()
	return ownerIn(state), state != 0 && ownerIn(state) != noLane
}

func (d *Directory) state(id FlowID) (state uint64, ok bool) {
	i := int(id.Index())
	if i >= len(d.slots) {
		return 0, false
	}
	state = d.slots[i].state.Load()
	return state, idIn(state) == id && state != 0
}

// placeIn returns the lane that gets the segments of a flow: the lane that owns the flow or, without an owner, the
// lane that parks the segments.
func placeIn(state uint64) Lane {
	if owner := ownerIn(state); owner != noLane {
		return owner
	}
	return parksIn(state)
}

func (s *slot) words() (words [keyLen / 8]uint64) {
	for i := range words {
		words[i] = s.key[i].Load()
	}
	return words
}

// wordsOf converts a key to the form in which a slot stores it.
func wordsOf(k *bpf.FlowKey) (words [keyLen / 8]uint64) {
	ne := binary.NativeEndian
	words[0], words[1] = ne.Uint64(k.Remote[:]), ne.Uint64(k.Remote[8:])
	words[2], words[3] = ne.Uint64(k.Local[:]), ne.Uint64(k.Local[8:])
	words[4] = uint64(ne.Uint16(k.RemotePort[:])) | uint64(ne.Uint16(k.LocalPort[:]))<<16 |
		uint64(k.VLAN)<<32 | uint64(k.Family)<<48 | uint64(k.Pad)<<56
	return words
}

// keyIn reverses wordsOf.
func keyIn(words *[keyLen / 8]uint64) (k bpf.FlowKey) {
	ne := binary.NativeEndian
	ne.PutUint64(k.Remote[:], words[0])
	ne.PutUint64(k.Remote[8:], words[1])
	ne.PutUint64(k.Local[:], words[2])
	ne.PutUint64(k.Local[8:], words[3])
	ne.PutUint16(k.RemotePort[:], uint16(words[4]))
	ne.PutUint16(k.LocalPort[:], uint16(words[4]>>16))
	k.VLAN, k.Family, k.Pad = uint16(words[4]>>32), uint8(words[4]>>48), uint8(words[4]>>56)
	return k
}
