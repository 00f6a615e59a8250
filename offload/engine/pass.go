package engine

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/port"
)

// passLen is how many frames can be on their way from one engine to another.
const passLen = 256

// passRing carries frames from exactly one engine to exactly one other.
type passRing struct {
	head  atomic.Uint32 // next to take; owned by the taker
	_     [60]byte      // the two ends live on different cache lines
	tail  atomic.Uint32 // next to fill; owned by the giver
	_     [60]byte
	slots []port.Frame // a power of two
}

func newPassRing(n int) *passRing {
	size := 1
	for size < n {
		size *= 2
	}
	return &passRing{slots: make([]port.Frame, size)}
}

// give hands f over, or reports that the ring is full.
func (r *passRing) give(f port.Frame) bool {
	tail := r.tail.Load()
	if tail-r.head.Load() == uint32(len(r.slots)) {
		return false
	}
	r.slots[tail&uint32(len(r.slots)-1)] = f
	r.tail.Store(tail + 1)
	return true
}

// take returns the oldest frame.
func (r *passRing) take() (port.Frame, bool) {
	head := r.head.Load()
	if head == r.tail.Load() {
		return port.Frame{}, false
	}
	f := r.slots[head&uint32(len(r.slots)-1)]
	r.head.Store(head + 1)
	return f, true
}

func (r *passRing) empty() bool { return r.head.Load() == r.tail.Load() }

// link is one engine's two rings with another engine, in one direction each:
// frames that belong to the other's flows, and the other's frames going home.
type link struct {
	peer *Engine
	pass *passRing // ours to the peer: a segment of one of its flows
	home *passRing // ours to the peer: its frame, back from us
	from *passRing // the peer's pass ring to us
	back *passRing // the peer's home ring to us
}

// Join connects the engines of one port, so that a segment which arrives at
// one queue reaches the flow that another queue owns. Call it once, before any
// engine runs; engines share one Directory and are numbered by their queue.
func Join(engines ...*Engine) error {
	for i, e := range engines {
		if int(e.queue) != i {
			return fmt.Errorf("join engines: number %d serves queue %d: pass them in the order of their queues", i, e.queue)
		}
		if e.dir != engines[0].dir {
			return fmt.Errorf("join engines: queue %d has another directory: all engines of an adapter share one", i)
		}
		e.links = make([]link, len(engines))
		e.wake = make([]uint64, (len(engines)+63)/64)
	}
	for i, a := range engines {
		for j, b := range engines {
			if i == j {
				continue
			}
			// The home ring holds every frame of b at once: it is never full.
			a.links[j] = link{peer: b, pass: newPassRing(passLen), home: newPassRing(int(b.limits.RxFrames))}
		}
	}
	for i, a := range engines {
		for j, b := range engines {
			if i != j {
				a.links[j].from, a.links[j].back = b.links[i].pass, b.links[i].home
			}
		}
	}
	return nil
}

// passTo gives f to the engine of queue. The frame is gone either way: to the
// other engine or, if its ring is full, back to the pool, counted.
func (e *Engine) passTo(queue uint16, f port.Frame) {
	if int(queue) >= len(e.links) || e.links[queue].pass == nil {
		e.count.drops[DropNoOwner]++
		e.release(f)
		return
	}
	if !e.links[queue].pass.give(f) {
		e.count.drops[DropPassFull]++
		e.release(f)
		return
	}
	e.count.PassedOut++
	e.wakeLater(queue)
}

// drainLinks takes in the frames that other engines passed to us and those of
// ours that come home, and looks at the former as at any other arrival.
func (e *Engine) drainLinks() (worked bool) {
	for i := range e.links {
		l := &e.links[i]
		if l.peer == nil {
			continue
		}
		for {
			f, ok := l.back.take()
			if !ok {
				break
			}
			e.release(f)
		}
		for range passLen {
			f, ok := l.from.take()
			if !ok {
				break
			}
			worked = true
			e.count.PassedIn++
			e.input(f)
		}
	}
	return worked
}

// release gives a receive frame back to whoever owns its chunk.
func (e *Engine) release(f port.Frame) {
	if f.Home == e.queue {
		e.spent = append(e.spent, f)
		return
	}
	l := &e.links[f.Home]
	if !l.home.give(f) {
		panic("stag: a home ring overflowed: a frame came back twice")
	}
	e.wakeLater(f.Home)
}

// wakeLater has the engine of queue woken when this step ends.
func (e *Engine) wakeLater(queue uint16) { e.wake[queue/64] |= 1 << (queue % 64) }

// wakePeers wakes the engines that this step left frames for.
func (e *Engine) wakePeers() {
	for i, set := range e.wake {
		if set == 0 {
			continue
		}
		e.wake[i] = 0
		for ; set != 0; set &= set - 1 {
			e.links[64*i+bits.TrailingZeros64(set)].peer.port.Wake()
		}
	}
}
