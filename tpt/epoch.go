package tpt

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Ticket is a moment after which something is not to be used any more. The zero
// Ticket has always passed.
type Ticket uint64

// epochs find out when nobody can be using what was taken away. The number of
// the current epoch goes up with every ticket; each Reader shows in its slot in
// which epoch it began what it is doing. A Reader that began in the ticket's epoch
// or later has seen that the entry is not valid.
type epochs struct {
	now     atomic.Uint64
	settled atomic.Uint64 // tickets up to this have passed
	waiting atomic.Pointer[waiter]
	slots   atomic.Pointer[[]*slot] // all that there are: none is ever taken away
	common  atomic.Pointer[[]*slot] // those of them that shared Readers take turns in

	joining sync.Mutex // held to change the lists, and what follows
	spare   []*slot    // whose Reader is closed
	joined  int        // Readers
}

// init starts with epoch 1: in a slot 0 means quiet.
func (p *epochs) init() {
	p.now.Store(1)
	p.slots.Store(new([]*slot))
	p.common.Store(new([]*slot))
}

// ticket begins a new epoch. The caller has taken away before what the ticket
// is about.
func (p *epochs) ticket() Ticket { return Ticket(p.now.Add(1)) }

func (p *epochs) passed(k Ticket) bool {
	if uint64(k) <= p.settled.Load() {
		return true
	}
	if uint64(k) > p.now.Load() {
		return false // nobody has that ticket
	}
	for _, s := range *p.slots.Load() {
		if in := s.epoch.Load(); in != 0 && in < uint64(k) {
			return false
		}
	}
	for old := p.settled.Load(); old < uint64(k); old = p.settled.Load() {
		if p.settled.CompareAndSwap(old, uint64(k)) {
			break
		}
	}
	return true
}

// spins is how often wait gives its processor away before it lies down: a step
// of an engine is short.
const spins = 16

// wait returns when k has passed. It sleeps until Readers leave.
func (p *epochs) wait(k Ticket) {
	for range spins {
		if p.passed(k) {
			return
		}
		runtime.Gosched()
	}
	for !p.passed(k) {
		w := new(waiter)
		w.woken.Add(1)
		p.enlist(w)
		// A Reader that left before it could see w is seen here.
		if p.passed(k) {
			return
		}
		w.woken.Wait()
	}
}

// waiter is a goroutine that waits, once. Readers wake it without a lock.
type waiter struct {
	woken sync.WaitGroup
	next  *waiter
}

func (p *epochs) enlist(w *waiter) {
	for {
		w.next = p.waiting.Load()
		if p.waiting.CompareAndSwap(w.next, w) {
			return
		}
	}
}

// wake lets everybody who waits look again. It costs one load when nobody does.
func (p *epochs) wake() {
	if p.waiting.Load() == nil {
		return
	}
	for w := p.waiting.Swap(nil); w != nil; {
		next := w.next
		w.woken.Done()
		w = next
	}
}
