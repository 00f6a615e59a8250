package tpt

import (
	"runtime"
	"sync/atomic"
)

// slot shows whether a Reader is in a step.
type slot struct {
	epoch atomic.Uint64 // epoch in which the step began; 0 outside a step
	_     [56]byte      // padding: no two epochs share a cache line
}

// Reader gives one engine the right to use the memory that Check returns. Only one
// goroutine at a time, the holder of the engine's token, may call Enter and Leave. A
// nil Reader belongs to an engine without a table, and does nothing.
type Reader struct {
	table  *Table
	slot   *slot // nil after Close; a shared Reader has a slot only from Enter to Leave
	shared bool
	last   int // index of the last used slot in the list of common slots, for shared Readers
}

// Join returns a Reader with a slot of its own, outside a step. Close ends the Reader.
// For a nil Table, Join returns a nil Reader. Join is for engines. Enter then costs one
// store. Every invalidation reads the slot of every engine, which is cheap because
// there are few engines.
func (t *Table) Join() *Reader {
	return t.join(func(p *epochs) *Reader {
		r := &Reader{table: t}
		if n := len(p.spare); n != 0 {
			r.slot, p.spare = p.spare[n-1], p.spare[:n-1]
			return r
		}
		s := p.newSlot(commonReserve)
		if s == nil { // the member has no more slots: use one only from Enter to Leave
			r.shared, r.last = true, p.joined
			p.fillCommon()
			return r
		}
		r.slot = extend(&p.slots, s)
		return r
	})
}

// JoinShared returns a Reader that has a slot only from Enter to Leave. Such Readers
// share a list of common slots. JoinShared is for connections that step by themselves.
// There may be tens of thousands of them, but only a few are in a step at a time. An
// invalidation reads no more slots than that.
func (t *Table) JoinShared() *Reader {
	return t.join(func(p *epochs) *Reader {
		p.fillCommon()
		return &Reader{table: t, shared: true, last: p.joined}
	})
}

// join calls the function reader with joining locked, and counts the Reader that reader
// returns.
func (t *Table) join(reader func(*epochs) *Reader) *Reader {
	if t == nil {
		return nil
	}
	p := &t.epochs
	p.joining.Lock()
	defer p.joining.Unlock()
	p.joined++
	return reader(p)
}

// fillCommon adds common slots until there are enough for all processors. The caller must
// hold joining.
func (p *epochs) fillCommon() {
	for len(*p.common.Load()) < 2*runtime.GOMAXPROCS(0) && p.add() {
	}
}

// add adds one common slot. It returns false if the member has no more slots. The caller
// must hold joining.
func (p *epochs) add() bool {
	s := p.newSlot(0)
	if s == nil {
		return false
	}
	extend(&p.slots, s)
	extend(&p.common, s)
	return true
}

// newSlot returns a slot of memory that the other members see, or nil if fewer than
// reserve are left. Without a group there is always one.
func (p *epochs) newSlot(reserve int) *slot {
	if p.members == nil {
		return new(slot)
	}
	return p.members.newSlot(reserve)
}

// extend adds s to the list. It may append in place, because goroutines that have
// loaded the list do not read beyond the list's old length.
func extend(list *atomic.Pointer[[]*slot], s *slot) *slot {
	all := append(*list.Load(), s)
	list.Store(&all)
	return s
}

// Enter begins a step. The caller may use the results of Check until Leave.
func (r *Reader) Enter() {
	switch {
	case r == nil || r.table == nil:
	case r.shared:
		r.slot = r.table.epochs.occupy(&r.last)
	case r.slot != nil:
		r.slot.epoch.Store(r.table.epochs.now.Load())
	}
}

// occupy enters through a free common slot and returns the slot. It tries the slot at
// *last first.
func (p *epochs) occupy(last *int) *slot {
	for {
		common := *p.common.Load()
		for i := range common {
			at := (*last + i) % len(common)
			if s := common[at]; s.epoch.Load() == 0 && s.epoch.CompareAndSwap(0, p.now.Load()) {
				*last = at
				return s
			}
		}
		p.widen(len(common))
	}
}

// widen adds one common slot if there are at most than common slots.
func (p *epochs) widen(than int) {
	p.joining.Lock()
	defer p.joining.Unlock()
	if len(*p.common.Load()) <= than && !p.add() {
		runtime.Gosched() // the Readers inside leave soon
	}
}

// Leave ends a step. The caller must not use results of Check any more. Leave frees
// entries that this and other engines have deregistered, if no Reader uses them any
// more. Leave never blocks.
func (r *Reader) Leave() {
	if r == nil || r.slot == nil {
		return
	}
	r.slot.epoch.Store(0)
	if r.shared {
		r.slot = nil // another Reader may use the slot from now on
	}
	r.table.epochs.wake()
	r.table.settle()
}

// Close ends the Reader and its step. Further calls do nothing.
func (r *Reader) Close() {
	if r == nil || r.table == nil {
		return
	}
	p, own := &r.table.epochs, r.slot
	r.Leave()
	r.slot, r.table = nil, nil
	p.joining.Lock()
	defer p.joining.Unlock()
	p.joined--
	if own != nil && !r.shared {
		p.spare = append(p.spare, own)
	}
}
