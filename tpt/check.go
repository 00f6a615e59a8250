package tpt

import "math"

// Check decides about one access, over the whole of its octets, and returns
// them as far as they are contiguous: today always all. They may be touched
// until the Reader of the calling engine calls Leave: an invalidation waits for
// that. An access of no octets is allowed without a look at the STag (RFC 5041
// §7).
//
// The order is index, key, valid, type, protection domain and queue pair,
// rights, wrap, bounds, and the first that fails decides.
func (t *Table) Check(a Access) (mem []byte, f Fault) {
	if a.Len == 0 {
		return nil, OK
	}
	if mem, f = t.look(a); f != OK {
		t.refusals[f].Add(1)
	}
	return mem, f
}

// look is Check without counting. It looks again when the entry changed
// meanwhile; then it is not valid, or valid anew.
func (t *Table) look(a Access) (mem []byte, f Fault) {
	e, ok := t.at(a.STag)
	if !ok {
		return nil, BadSTag
	}
	for {
		w := e.load()
		if !w.serves(a) {
			return nil, BadSTag
		}
		mem, f = t.judge(e, w, a)
		if e.unchanged(w) {
			return mem, f
		}
	}
}

// serves reports whether key, validity and type are right. Windows are for
// peers only.
func (w word) serves(a Access) bool {
	if w.key() != a.STag.Key() || !w.valid() {
		return false
	}
	return w.kind() == KindRegion || w.kind() == KindWindow && a.Right&^remote == 0
}

// judge decides by the fields, which count only if the state is the same after.
func (t *Table) judge(e *entry, w word, a Access) (mem []byte, f Fault) {
	if !e.belongs(w, a.PD, a.QP) {
		return nil, WrongPD
	}
	if a.Right == 0 || e.rights()&a.Right != a.Right {
		return nil, NoRight
	}
	if a.TO > math.MaxUint64-uint64(a.Len-1) {
		return nil, Wrap
	}
	start, length := e.start.Load(), e.length.Load()
	if a.TO < start || !inside(a.TO-start, uint64(a.Len), length) {
		return nil, OutOfBounds
	}
	whole, ok := t.memory(e, a.STag.Index(), length)
	if !ok {
		return nil, BadSTag
	}
	from := a.TO - start
	to := from + uint64(a.Len)
	return whole[from:to:to], OK
}

// belongs reports whether the entry is in the protection domain and, if it is a
// window bound to a queue pair, bound to this one.
func (e *entry) belongs(w word, pd PD, qp uint32) bool {
	if PD(e.pd.Load()) != pd {
		return false
	}
	bound := e.qp.Load()
	return w.kind() != KindWindow || bound == 0 || bound == qp
}

// memory is all of an entry's octets. ok is false where they are not within
// this process's reach, and where the entry is being written.
func (t *Table) memory(e *entry, index uint32, length uint64) (mem []byte, ok bool) {
	if e.translation.Load()&translationKind != translationDirect {
		return nil, false
	}
	space, off := e.place()
	switch space {
	case spaceHeap:
		mem = t.heap
	case spaceExternal:
		if p := t.external[index].Load(); p != nil {
			mem = *p
		}
	}
	if !inside(off, length, uint64(len(mem))) {
		return nil, false
	}
	return mem[off : off+length], true
}
