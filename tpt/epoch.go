package tpt

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Ticket is a moment after which something is not to be used any more. The zero
// Ticket has always passed.
type Ticket uint64

// epochs find out when nobody can be using what was taken away. The number of
// the current epoch goes up with every ticket; each Reader shows in which epoch
// it began what it is doing. Who began in the ticket's epoch or later has seen
// that the entry is not valid.
type epochs struct {
	now     atomic.Uint64
	settled atomic.Uint64 // tickets up to this have passed
	readers atomic.Pointer[[]*Reader]
	joining sync.Mutex // held to change readers
	waiting atomic.Pointer[waiter]
}

// init starts with epoch 1: in a Reader 0 means quiet.
func (p *epochs) init() {
	p.now.Store(1)
	p.readers.Store(new([]*Reader))
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
	for _, r := range *p.readers.Load() {
		if in := r.epoch.Load(); in != 0 && in < uint64(k) {
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

// Reader is one engine's right to use what Check returns. Enter and Leave are
// called by one goroutine at a time, the holder of the engine's token. A nil
// Reader, of an engine without a table, does nothing.
type Reader struct {
	epoch atomic.Uint64 // when it entered; 0: it is quiet
	table *Table
	_     [48]byte // no other Reader's epoch in this cache line
}

// Join makes a Reader, which is quiet. Close ends it. A nil Table has nil
// Readers.
func (t *Table) Join() *Reader {
	if t == nil {
		return nil
	}
	r := &Reader{table: t}
	p := &t.epochs
	p.joining.Lock()
	defer p.joining.Unlock()
	all := append(slices.Clone(*p.readers.Load()), r)
	p.readers.Store(&all)
	return r
}

// Enter begins a step: what Check returns from now on may be used until Leave.
func (r *Reader) Enter() {
	if r != nil {
		r.epoch.Store(r.table.epochs.now.Load())
	}
}

// Leave ends a step: nothing that Check returned is used any more. It never
// blocks.
func (r *Reader) Leave() {
	if r == nil {
		return
	}
	r.epoch.Store(0)
	r.table.epochs.wake()
}

// Close ends the Reader, which then is quiet for good. Further calls do nothing.
func (r *Reader) Close() {
	if r == nil {
		return
	}
	p := &r.table.epochs
	p.joining.Lock()
	all := slices.DeleteFunc(slices.Clone(*p.readers.Load()), func(o *Reader) bool { return o == r })
	p.readers.Store(&all)
	p.joining.Unlock()
	r.Leave()
}
