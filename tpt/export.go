package tpt

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/pack"
)

// ErrStays is returned by Export for an entry that has no meaning in another process.
var ErrStays = errors.New("the entry cannot go to another process")

// state is the contents of a table, for the table of another process that maps the same
// heap.
type state struct {
	entries uint32 // of the table
	heap    uint64 // octets of the heap
	lastPD  PD
	pds     []PD
	used    []usedEntry
}

// usedEntry is an entry that was used at least once.
type usedEntry struct {
	index uint32
	state word
	f     entryFields // zero for a free entry
}

// entryFields are the contents of an entry, as they are in memory.
type entryFields struct {
	start, length, base, sequence          uint64
	pd, qp, parent, first, access, whereto uint32
}

func (e *entry) contents() entryFields {
	return entryFields{
		start: e.start.Load(), length: e.length.Load(), base: e.base.Load(), sequence: e.sequence.Load(),
		pd: e.pd.Load(), qp: e.qp.Load(), parent: e.parent.Load(), first: e.first.Load(),
		access: e.access.Load(), whereto: e.translation.Load(),
	}
}

func (e *entry) setContents(f *entryFields) {
	e.start.Store(f.start)
	e.length.Store(f.length)
	e.base.Store(f.base)
	e.sequence.Store(f.sequence)
	e.pd.Store(f.pd)
	e.qp.Store(f.qp)
	e.parent.Store(f.parent)
	e.first.Store(f.first)
	e.access.Store(f.access)
	e.translation.Store(f.whereto)
}

// stateFormat is the format of an encoded State.
var stateFormat = pack.Format{Name: "table", Kind: 0x545054, Version: 1}

func (s *state) code(c *pack.Coder) {
	pack.Uint(c, &s.entries)
	pack.Uint(c, &s.heap)
	pack.Uint(c, &s.lastPD)
	pack.List(c, &s.pds, maxEntries, func(c *pack.Coder, pd *PD) { pack.Uint(c, pd) })
	pack.List(c, &s.used, maxEntries, func(c *pack.Coder, u *usedEntry) {
		pack.Uint(c, &u.index)
		pack.Uint(c, &u.state)
		if u.state.kind() == KindFree {
			return
		}
		f := &u.f
		for _, n := range []*uint64{&f.start, &f.length, &f.base, &f.sequence} {
			pack.Uint(c, n)
		}
		for _, n := range []*uint32{&f.pd, &f.qp, &f.parent, &f.first, &f.access, &f.whereto} {
			pack.Uint(c, n)
		}
	})
}

// Export returns the contents of the table, for Restore. No verb may run meanwhile, and no
// engine may be within a step. The table is unchanged. The error is ErrStays and names the
// first entry that cannot go to another process: one of a group, of an iSCSI connection,
// with a page list, or with memory outside of the region heap. CanExport returns the same
// error at any time.
func (t *Table) Export() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	t.drain()
	if err := t.canExport(); err != nil {
		return nil, err
	}
	s := &state{entries: uint32(len(t.entries)), heap: uint64(len(t.heap)), lastPD: t.lastPD}
	for pd := range t.pds {
		s.pds = append(s.pds, pd)
	}
	for i := range t.own {
		e := &t.own[i]
		w := e.load()
		if w.fresh() {
			continue
		}
		u := usedEntry{index: uint32(i), state: w}
		if w.kind() != KindFree {
			u.f = e.contents()
		}
		s.used = append(s.used, u)
	}
	return stateFormat.Encode(nil, s.code)
}

// CanExport returns the error that Export would return now.
func (t *Table) CanExport() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	return t.canExport()
}

func (t *Table) canExport() error {
	if t.spaces != nil {
		return fmt.Errorf("%w: the table is shared by a group of processes", ErrStays)
	}
	for i := range t.own {
		e := &t.own[i]
		w := e.load()
		f := e.from(0)
		why := ""
		switch space, _ := place(f.base); {
		case w.kind() == KindFree && !w.busy():
		case w.busy():
			why = "it is being changed, or waits for an engine"
		case w.kind() == KindISCSI:
			why = "it is of an iSCSI connection"
		case f.kind != translationDirect:
			why = "it has a page list"
		case space != spaceHeap:
			why = "its memory is not in the region heap"
		}
		if why != "" {
			return fmt.Errorf("STag %v: %w: %s", NewSTag(uint32(i), w.key()), ErrStays, why)
		}
	}
	return nil
}

// Restore gives a table that has no contents those of Export in another process. The STags
// keep their index and their key. The heap must be that of the exported table, and the table
// must have as many entries or more. With Config.Keep, the entries are in the memory already,
// and Restore changes nothing there. Nothing can be registered before Continue. After an
// error the table must not be used. The error is pack.ErrCorrupt, pack.ErrVersion, or says
// what does not fit.
func (t *Table) Restore(exported []byte) error {
	s := new(state)
	err := stateFormat.Decode(exported, s.code)
	if err == nil {
		err = t.restoreAll(s)
	}
	if err != nil {
		return fmt.Errorf("restore table: %w", err)
	}
	return nil
}

func (t *Table) restoreAll(s *state) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pds) != 0 || t.spaces != nil || s.entries > uint32(len(t.entries)) || s.heap != uint64(len(t.heap)) {
		return fmt.Errorf("%d entries over a heap of %d octets do not fit: this table has %d entries over %d octets, and %d protection domains",
			s.entries, s.heap, len(t.entries), len(t.heap), len(t.pds))
	}
	for _, pd := range s.pds {
		if t.pds[pd] != nil || pd == 0 {
			return corruptState("protection domain %d", pd)
		}
		t.pds[pd] = &domain{}
	}
	t.lastPD = s.lastPD
	t.slots.empty()
	seen := make(map[uint32]bool, len(s.used))
	for i := range s.used {
		if u := &s.used[i]; seen[u.index] {
			return corruptState("entry %d twice", u.index)
		}
		seen[s.used[i].index] = true
		if err := t.restore(&s.used[i]); err != nil {
			return err
		}
	}
	return nil
}

// Continue lets verbs register in a restored table. No other process may write to the table
// any more, and no verb may run meanwhile.
func (t *Table) Continue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots.restock()
}

func corruptState(format string, args ...any) error {
	return fmt.Errorf("%w: %s", pack.ErrCorrupt, fmt.Sprintf(format, args...))
}

// restore fills one entry.
func (t *Table) restore(u *usedEntry) error {
	n := uint32(len(t.entries))
	if u.index == 0 || u.index >= n || u.state.fresh() || u.state.busy() {
		return corruptState("entry %d in state %#x", u.index, uint64(u.state))
	}
	e := &t.entries[u.index]
	if t.keep && e.load() != u.state || !t.keep && !e.load().fresh() {
		return corruptState("entry %d in state %#x, and %#x in memory", u.index, uint64(u.state), uint64(e.load()))
	}
	if k := u.state.kind(); k == KindFree {
		if !t.keep {
			e.publish(u.state)
		}
		return nil
	} else if k != KindRegion && k != KindWindow {
		return corruptState("entry %d of kind %v", u.index, k)
	}
	f, d := &u.f, t.pds[PD(u.f.pd)]
	space, off := place(f.base)
	switch {
	case d == nil:
		return corruptState("entry %d in protection domain %d, which is not there", u.index, f.pd)
	case space != spaceHeap || f.whereto&translationKind != translationDirect || f.first != 0:
		return corruptState("entry %d with memory outside of the heap", u.index)
	case !inside(off, f.length, uint64(len(t.heap))) || f.start+f.length < f.start && f.start+f.length != 0:
		return corruptState("entry %d has %d octets from %d on of a heap of %d", u.index, f.length, off, len(t.heap))
	case f.access>>accessWindow > uint32(Type2B) || f.parent >= n:
		return corruptState("entry %d with access %#x and region %d", u.index, f.access, f.parent)
	}
	f.whereto = f.whereto&(1<<translationOwner-1) | uint32(t.owner)<<translationOwner
	d.entries++
	if t.keep {
		if e.contents() != u.f {
			return corruptState("entry %d is another one in memory", u.index)
		}
		return nil
	}
	e.setContents(f)
	e.publish(u.state)
	return nil
}

// empty takes every entry away, until restock.
func (s *slots) empty() {
	s.free, s.fresh, s.first, s.count, s.open, s.last = 0, 0, 0, 0, batch{}, 0
}

// restock makes the slots contain exactly the free entries, in a random order. Those that
// were never used come first, so that the others are used again late.
func (s *slots) restock() {
	s.empty()
	for _, used := range []bool{false, true} {
		for i := range uint32(len(s.entries)) {
			index := s.order.number(i)
			if w := s.entries[index].load(); index != 0 && w.kind() == KindFree && !w.busy() && w.fresh() != used {
				s.give(s.base + index)
			}
		}
	}
}
