package tpt

import (
	"runtime"
	"sync/atomic"
)

// slot shows what a Reader is doing.
type slot struct {
	epoch atomic.Uint64 // when it entered; 0: it is quiet
	_     [56]byte      // no other slot's epoch in this cache line
}

// Reader is one engine's right to use the memory that Check returns. Enter and Leave are
// called by one goroutine at a time, the holder of the engine's token. A nil
// Reader, of an engine without a table, does nothing.
type Reader struct {
	table  *Table
	slot   *slot // shared: only from Enter to Leave; nil after Close
	shared bool
	last   int // shared: where in the list of common slots it was
}

// Join makes a Reader with a slot of its own, which is quiet. Close ends it. A
// nil Table has nil Readers. Enter costs a store, and every invalidation looks at
// the slot: that is right for engines, of which there are few.
func (t *Table) Join() *Reader {
	return t.join(func(p *epochs) *Reader {
		r := &Reader{table: t}
		if n := len(p.spare); n != 0 {
			r.slot, p.spare = p.spare[n-1], p.spare[:n-1]
			return r
		}
		r.slot = extend(&p.slots, new(slot))
		return r
	})
}

// JoinShared makes a Reader that has a slot only from Enter to Leave, one of
// those that are common to all such Readers. It is for connections that step by
// themselves: of tens of thousands a few are inside at a time, and an invalidation
// looks at no more slots than that.
func (t *Table) JoinShared() *Reader {
	return t.join(func(p *epochs) *Reader {
		for len(*p.common.Load()) < 2*runtime.GOMAXPROCS(0) {
			p.add()
		}
		return &Reader{table: t, shared: true, last: p.joined}
	})
}

// join counts the Reader that reader makes. It calls reader with joining held.
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

// add makes one more common slot. The caller holds joining.
func (p *epochs) add() {
	s := extend(&p.slots, new(slot))
	extend(&p.common, s)
}

// extend adds s to the list, in place if there is room: goroutines that have the
// list already do not see behind its end.
func extend(list *atomic.Pointer[[]*slot], s *slot) *slot {
	all := append(*list.Load(), s)
	list.Store(&all)
	return s
}

// Enter begins a step: what Check returns from now on may be used until Leave.
func (r *Reader) Enter() {
	switch {
	case r == nil || r.table == nil:
	case r.shared:
		r.slot = r.table.epochs.occupy(&r.last)
	case r.slot != nil:
		r.slot.epoch.Store(r.table.epochs.now.Load())
	}
}

// occupy enters through a common slot that is quiet. It tries the slot at *last first.
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

// widen makes one more common slot, unless there are more than that many.
func (p *epochs) widen(than int) {
	p.joining.Lock()
	defer p.joining.Unlock()
	if len(*p.common.Load()) <= than {
		p.add()
	}
}

// Leave ends a step: nothing that Check returned is used any more. It never
// blocks.
func (r *Reader) Leave() {
	if r == nil || r.slot == nil {
		return
	}
	r.slot.epoch.Store(0)
	if r.shared {
		r.slot = nil // from now on another Reader may use the slot
	}
	r.table.epochs.wake()
}

// Close ends the Reader, which is quiet from then on. Further calls do nothing.
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
