package tpt

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Ticket identifies an invalidation. It has passed when no Reader can use the
// invalidated memory any more. The zero Ticket has always passed.
type Ticket uint64

// epochs finds out when no Reader can use invalidated memory any more. Every ticket
// increments the number of the current epoch. Each Reader stores in its slot the epoch
// in which its step began. A Reader whose step began in the ticket's epoch or later
// has seen that the entry is not valid.
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

// ticket begins a new epoch. The caller has made the entry invalid before.
func (p *epochs) ticket() Ticket { return Ticket(p.now.Add(1)) }

func (p *epochs) passed(k Ticket) bool {
	if uint64(k) <= p.settled.Load() {
		return true
	}
	if uint64(k) > p.now.Load() {
		return false // ticket has not given out k
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

// spins is how often wait yields its processor before it sleeps: a step of an engine
// is short.
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

// wake wakes every waiter, which then checks again. It costs one load if there is none.
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
