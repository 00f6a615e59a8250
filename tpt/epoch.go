package tpt

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Ticket identifies an invalidation. A ticket has passed when no Reader can use the
// invalidated memory any more. The zero Ticket has always passed.
type Ticket uint64

// epochs tells when no Reader can use invalidated memory any more. A ticket is the
// number of the next epoch. That epoch begins when the first of its tickets is asked
// for, so that all tickets of a step of an engine share one epoch. Each Reader stores in
// its slot the epoch in which its step began. A Reader whose step began in the ticket's
// epoch or later has seen that the entry is not valid.
type epochs struct {
	now     *atomic.Uint64 // has a cache line of its own; all members of a group have the same
	settled atomic.Uint64  // all tickets up to this number have passed
	waiting atomic.Pointer[waiter]
	slots   atomic.Pointer[[]*slot] // all slots; slots are never removed
	common  atomic.Pointer[[]*slot] // the slots that shared Readers use in turn
	members *memberEpochs           // the slots of all members of the group; nil: the table is in no group

	joining sync.Mutex // protects changes of slots and common, and the fields below
	spare   []*slot    // slots of closed Readers
	joined  int        // number of Readers
}

// init begins with epoch 1, or with the present epoch of the group. The value 0 in a slot
// means that its Reader is outside a step.
func (p *epochs) init(members *memberEpochs) {
	if p.members = members; members != nil {
		p.now = members.now
	} else {
		p.now = &new(slot).epoch
	}
	p.now.CompareAndSwap(0, 1)
	p.slots.Store(new([]*slot))
	p.common.Store(new([]*slot))
}

// ticket returns the next epoch. The caller must have made the entry invalid before.
func (p *epochs) ticket() Ticket { return Ticket(p.now.Load() + 1) }

func (p *epochs) passed(k Ticket) bool {
	if uint64(k) <= p.settled.Load() {
		return true
	}
	if now := p.now.Load(); uint64(k) > now+1 {
		return false // no call of ticket has returned k
	} else if uint64(k) > now {
		p.now.CompareAndSwap(now, uint64(k)) // another goroutine may begin the epoch first
	}
	if !p.passedHere(k) || p.members != nil && !p.members.passed(k) {
		return false
	}
	for old := p.settled.Load(); old < uint64(k); old = p.settled.Load() {
		if p.settled.CompareAndSwap(old, uint64(k)) {
			break
		}
	}
	return true
}

// passedHere reports whether k has passed for the Readers of this process. The epoch of k
// must have begun.
func (p *epochs) passedHere(k Ticket) bool {
	for _, s := range *p.slots.Load() {
		if in := s.epoch.Load(); in != 0 && in < uint64(k) {
			return false
		}
	}
	return true
}

// spins is how often wait yields its processor before it sleeps. A step of an engine is
// short, so most waits end before the sleep.
const spins = 16

// wait waits until k has passed. It yields its processor first, then it sleeps.
func (p *epochs) wait(k Ticket) {
	for range spins {
		if p.passed(k) {
			return
		}
		runtime.Gosched()
	}
	for !p.passed(k) {
		if p.members != nil {
			p.members.pause() // the Readers of other processes wake nobody
			continue
		}
		w := new(waiter)
		w.woken.Add(1)
		p.enlist(w)
		// A Reader that left before it could see w does not wake w. Without this check
		// the wait would not end, although k has passed.
		if p.passed(k) {
			return
		}
		w.woken.Wait()
	}
}

// waiter is one waiting goroutine. A waiter is used once. Readers wake it without a
// lock.
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

// wake wakes all waiters, which then check again. Without waiters it costs one load.
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

// Ticket returns a ticket that passes when every step that runs now has ended. It is for a
// queue pair from another process, which waits for tickets of that process's table.
func (t *Table) Ticket() Ticket { return t.epochs.ticket() }
