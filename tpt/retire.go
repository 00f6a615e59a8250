package tpt

import "sync/atomic"

// retired are the entries that engines have deregistered and that are not free yet. All
// lists are chains of entries, so that nothing is allocated: an entry names the next one
// in its field parent. The retired entries are BUSY, and a list has them exactly once.
//
//	StartDeregister -> now -- Leave, one ticket --> later -- ticket has passed --> freed
type retired struct {
	now   atomic.Uint32 // entries of the present steps
	later atomic.Uint32 // chains that wait; each chain's first entry has the ticket in sequence, and the next chain in start
	freed atomic.Uint32 // entries that are free, until a verb gives them to the slots
	many  atomic.Int64  // number of entries in now and later
}

// push adds the chain of entries from first to last to a list.
func (t *Table) push(list *atomic.Uint32, first, last uint32) {
	for {
		head := list.Load()
		t.entries[last].parent.Store(head)
		if list.CompareAndSwap(head, first) {
			return
		}
	}
}

// StartDeregister makes an entry invalid and frees it, for a work request of its owner.
// It never waits, locks or allocates. The memory of the entry is free when the ticket
// has passed. The table reuses the entry as after Deregister. The faults are those of
// StartLocalInvalidate. If several calls name one STag, only one of them succeeds.
func (t *Table) StartDeregister(s STag, pd PD, qp uint32) (Ticket, Fault) {
	_, f := t.withdraw(s, pd, qp, false, word.taken)
	if f != OK {
		return 0, f
	}
	t.retired.many.Add(1)
	t.push(&t.retired.now, s.Index(), s.Index())
	return t.epochs.ticket(), OK
}

// settle frees retired entries as far as no Reader uses them. Leave calls it. All
// entries that were retired since the last call share one ticket.
func (t *Table) settle() {
	if t.retired.now.Load() != 0 {
		if first := t.retired.now.Swap(0); first != 0 {
			t.postpone(first, t.epochs.ticket())
		}
	}
	if t.retired.later.Load() != 0 {
		t.collect()
	}
}

// postpone adds a chain of retired entries to the chains that wait for a ticket.
func (t *Table) postpone(first uint32, k Ticket) {
	e := &t.entries[first]
	e.sequence.Store(uint64(k))
	for {
		head := t.retired.later.Load()
		e.start.Store(uint64(head))
		if t.retired.later.CompareAndSwap(head, first) {
			return
		}
	}
}

// collect frees the chains whose tickets have passed, and puts the other chains back. A
// Reader that leaves while collect holds a chain cannot free the chain. Therefore collect
// asks again about the chains that it has put back, until none of their tickets has passed.
func (t *Table) collect() {
	for again := true; again; {
		oldest := Ticket(0)
		for first := t.retired.later.Swap(0); first != 0; {
			e := &t.entries[first]
			next, k := uint32(e.start.Load()), Ticket(e.sequence.Load())
			if t.epochs.passed(k) {
				t.reap(first)
			} else {
				t.postpone(first, k)
				if oldest == 0 || k < oldest {
					oldest = k
				}
			}
			first = next
		}
		again = oldest != 0 && t.epochs.passed(oldest)
	}
}

// reap frees the entries of a chain. No Reader uses them any more.
func (t *Table) reap(first uint32) {
	n, last := int64(0), first
	for index := first; index != 0; n++ {
		next := t.entries[index].parent.Load()
		t.clear(index)
		t.entries[index].parent.Store(next)
		last, index = index, next
	}
	t.push(&t.retired.freed, first, last)
	t.retired.many.Add(-n)
}

// clear makes a locked entry free. It keeps the protection domain, from which drain
// subtracts the entry.
func (t *Table) clear(index uint32) {
	e := &t.entries[index]
	e.fill(fields{pd: PD(e.pd.Load())})
	t.external.drop(index)
	e.publish(e.load().freed())
}

// free makes a locked entry free. If a page list was only the entry's, its memory is
// dropped.
func (t *Table) free(index uint32) {
	paged := t.entries[index].translation.Load()&translationKind != translationDirect
	t.clear(index)
	t.push(&t.retired.freed, index, index)
	if paged {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drain()
	}
}

// drain gives the freed entries to the slots, and ends their translations. The caller
// must hold mu.
func (t *Table) drain() {
	if t.retired.freed.Load() == 0 {
		return
	}
	for index := t.retired.freed.Swap(0); index != 0; {
		e := &t.entries[index]
		next := e.parent.Load()
		t.forget(index)
		if d := t.pds[PD(e.pd.Load())]; d != nil && d.entries != 0 { // another process can write to the entry
			d.entries--
		}
		t.slots.give(index)
		index = next
	}
}

// await waits until the entries that engines have retired so far are free. The caller
// must not hold mu, and must not be within a step. await returns false if there are
// none.
func (t *Table) await() bool {
	if t.retired.many.Load() == 0 {
		return false
	}
	t.settle()
	t.epochs.wait(t.epochs.ticket())
	t.settle()
	return true
}
