package engine

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/port"
)

// passLen is how many segments of other engines can wait at a lane, from all engines
// together.
const passLen = 1024

// mail holds frames that other engines have given to one engine: segments of that
// engine's flows, and frames of that engine's pool that come back. Any engine may give.
// Only the engine itself takes. No engine waits or locks.
type mail struct {
	pass passRing
	home homeRing
	late atomic.Bool // the engine has ended, and a frame may have come since then
}

// passSlot is a place of a passRing. turn is the position that may be filled next in
// this place. When the frame is in place, turn is that position plus 1.
type passSlot struct {
	turn  atomic.Uint64
	frame port.Frame
}

// passRing is a bounded queue with many givers and one taker. If a giver has claimed a
// place and not filled it yet, the taker does not see the places behind it. The taker
// finds an empty ring then and does not wait.
type passRing struct {
	tail  atomic.Uint64 // next position to fill
	_     [56]byte      // keeps the two ends in different cache lines
	head  uint64        // next position to take; only the taker uses it
	_     [56]byte
	slots []passSlot // length is a power of two
}

// init makes room for n frames, rounded up to a power of two.
func (r *passRing) init(n int) {
	r.slots = make([]passSlot, powerOfTwo(n))
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
}

// give puts f into the ring, or returns false if the ring is full. give tries again
// only when another giver has just succeeded.
func (r *passRing) give(f port.Frame) bool {
	for {
		at := r.tail.Load()
		s := &r.slots[at&uint64(len(r.slots)-1)]
		switch turn := s.turn.Load(); {
		case turn == at:
			if r.tail.CompareAndSwap(at, at+1) {
				s.frame = f
				s.turn.Store(at + 1)
				return true
			}
		case turn < at:
			return false // the frame of the previous round is still there
		}
	}
}

// take removes and returns the oldest frame. take returns false if the ring is empty.
func (r *passRing) take() (port.Frame, bool) {
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	if s.turn.Load() != r.head+1 {
		return port.Frame{}, false
	}
	f := s.frame
	s.turn.Store(r.head + uint64(len(r.slots)))
	r.head++
	return f, true
}

// homeRing carries frames of one pool back to the pool. A homeRing has a place for each
// frame of the pool. It is therefore never full. A place contains the frame's address
// plus 1. 0 means that the place is empty.
type homeRing struct {
	tail  atomic.Uint64 // next position to fill
	_     [56]byte      // keeps the two ends in different cache lines
	head  uint64        // next position to take; only the taker uses it
	_     [56]byte
	slots []atomic.Uint64 // length is a power of two
}

// init makes room for every frame of a pool.
func (r *homeRing) init(frames int) { r.slots = make([]atomic.Uint64, powerOfTwo(frames)) }

// give returns the frame at addr to its pool.
func (r *homeRing) give(addr uint64) {
	at := r.tail.Add(1) - 1
	if r.slots[at&uint64(len(r.slots)-1)].Swap(addr+1) != 0 {
		panic("stag: a home ring overflowed: a frame came back twice")
	}
}

// take returns the address of the oldest frame. ok is false if there is none.
func (r *homeRing) take() (addr uint64, ok bool) {
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	v := s.Load()
	if v == 0 {
		return 0, false
	}
	s.Store(0)
	r.head++
	return v - 1, true
}

// powerOfTwo returns the smallest power of two that is n or more.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// lanes is an engine's place among the engines of its adapter. Join sets it.
type lanes struct {
	engines []*Engine   // engines of the adapter by lane; empty for an adapter with one lane
	first   port.Lane   // first lane of this engine's port
	span    port.Lane   // number of lanes of this engine's port
	wake    []uint64    // bitmap of the lanes to wake after this step, as far as this engine has met lanes
	waking  []port.Lane // the same lanes in a list
}

// Join connects the engines of all ports of an adapter. A segment that arrives at one
// lane then reaches the flow that another lane's engine owns. Call Join once, before
// any engine runs. The engines must share one Directory. The arguments must be in the
// order of their lanes, with the engines of one port next to each other.
func Join(engines ...*Engine) error { return join(engines, engines) }

// join connects the fresh engines, which do not run yet, with all engines of the adapter,
// which include them.
func join(fresh, engines []*Engine) error {
	for i, e := range engines {
		if int(e.lane) != i {
			return fmt.Errorf("join engines: number %d serves lane %d: pass them in the order of their lanes", i, e.lane)
		}
		if e.dir != engines[0].dir {
			return fmt.Errorf("join engines: lane %d has another directory: all engines of an adapter share one", i)
		}
	}
	pools := poolsOf(engines)
	for i, e := range fresh {
		e.connect(engines, pools)
		if i == 0 || fresh[i-1].limits.Port != e.limits.Port {
			e.lanes.first = e.lane
		} else {
			e.lanes.first = fresh[i-1].lanes.first
		}
	}
	for i := len(fresh) - 1; i >= 0; i-- {
		e := fresh[i]
		if i+1 < len(fresh) && fresh[i+1].limits.Port == e.limits.Port {
			e.lanes.span = fresh[i+1].lanes.span
		} else {
			e.lanes.span = e.lane + 1 - e.lanes.first
		}
	}
	return nil
}

func poolsOf(engines []*Engine) []*frames {
	pools := make([]*frames, len(engines))
	for i, e := range engines {
		pools[i] = &e.frames
	}
	return pools
}

// connect makes this engine know all engines of the adapter. It costs the same however many
// there are: the engines share the lists, and what an engine keeps of other lanes grows when
// it meets them.
func (e *Engine) connect(engines []*Engine, pools []*frames) {
	if e.mail.pass.slots == nil {
		e.mail.pass.init(passLen)
		e.mail.home.init(int(e.limits.RxFrames))
	}
	e.lanes.engines, e.frames.all = engines, pools
}

// Extend connects the engines of a new port, which do not run yet, with the engines of an
// adapter, which run. The lanes of the new engines follow those of the others. Extend
// returns when all engines know each other. An engine that has stopped passes doorbells to
// the others, and must know them too.
func Extend(ctx context.Context, running, added []*Engine) error {
	engines := append(slices.Clone(running), added...)
	if err := join(added, engines); err != nil {
		return err
	}
	pools := poolsOf(engines)
	for _, e := range running {
		if err := e.between(context.WithoutCancel(ctx), func() { e.connect(engines, pools) }); err != nil {
			return fmt.Errorf("tell lane %d of new lanes: %w", e.lane, err)
		}
	}
	return nil
}

// ofOurPort reports whether the frame's pool belongs to this engine's port.
func (e *Engine) ofOurPort(f port.Frame) bool { return f.Home-e.lanes.first < e.lanes.span }

// passTo gives f to the engine of a lane. The caller must not use the frame afterwards.
// If the ring of that engine is full, passTo counts the packet and returns the frame to
// its pool.
func (e *Engine) passTo(lane port.Lane, f port.Frame) {
	if int(lane) >= len(e.lanes.engines) || lane == e.lane || e.lanes.engines[lane].ended.Load() {
		e.count.drops[DropNoOwner]++
		e.release(f)
		return
	}
	to := e.lanes.engines[lane]
	if !to.mail.pass.give(f) {
		e.count.drops[DropPassFull]++
		e.release(f)
		return
	}
	e.count.PassedOut++
	e.wakeLater(lane)
	if to.ended.Load() { // the engine has ended meanwhile
		to.mail.late.Store(true)
		to.drain()
	}
}

// returnMail returns the frames that wait for this engine, which has ended, to their
// pools. The caller holds the token.
func (e *Engine) returnMail() {
	for f, ok := e.mail.pass.take(); ok; f, ok = e.mail.pass.take() {
		if f.Home != e.lane { // no engine uses the pool of this lane any more
			e.release(f)
		}
	}
	e.wakePeers()
}

// takeMail takes frames that other engines have given to this engine. Segments are
// processed like any other arrival. This engine's own frames return to the pool.
func (e *Engine) takeMail() {
	for addr, ok := e.mail.home.take(); ok; addr, ok = e.mail.home.take() {
		e.frames.spent = append(e.frames.spent, port.Frame{Addr: addr, Home: e.lane})
	}
	for range passLen {
		f, ok := e.mail.pass.take()
		if !ok {
			return
		}
		e.worked = true
		e.count.PassedIn++
		e.input(f)
	}
}

// release gives a receive frame back to the lane that owns its pool.
func (e *Engine) release(f port.Frame) {
	if f.Home == e.lane {
		e.frames.spent = append(e.frames.spent, f)
		return
	}
	e.lanes.engines[f.Home].mail.home.give(f.Addr)
	e.wakeLater(f.Home)
}

// wakeLater makes the end of this step wake the engine of a lane.
func (e *Engine) wakeLater(lane port.Lane) {
	e.lanes.wake = upTo(e.lanes.wake, int(lane/64))
	word, bit := &e.lanes.wake[lane/64], uint64(1)<<(lane%64)
	if *word&bit == 0 {
		*word |= bit
		e.lanes.waking = append(e.lanes.waking, lane)
	}
}

// upTo returns list with a place for index i. It allocates when the list must grow.
func upTo[T any](list []T, i int) []T {
	if i < len(list) {
		return list
	}
	return append(list, make([]T, i+1-len(list))...)
}

// wakePeers wakes the engines that have got frames in this step.
func (e *Engine) wakePeers() {
	for last := len(e.lanes.waking) - 1; last >= 0; last = len(e.lanes.waking) - 1 {
		lane := e.lanes.waking[last]
		e.lanes.waking = e.lanes.waking[:last]
		e.lanes.wake[lane/64] &^= 1 << (lane % 64)
		e.lanes.engines[lane].wake()
	}
}
