package tpt

import "math"

// Check decides about one access, over the whole of its octets, and returns the
// first piece of them: those that are contiguous. If that is shorter than the access,
// a Memo has the others. The octets may be touched until the Reader of the calling
// engine calls Leave: an invalidation waits for that. An access of no octets is
// allowed without a look at the STag (RFC 5041 §7).
//
// The order is index, key, valid, type, protection domain and queue pair,
// rights, wrap, bounds, and the first that fails decides.
func (t *Table) Check(a Access) (mem []byte, f Fault) {
	var m Memo
	return m.Check(t, a)
}

// Memo checks accesses and caches the fields of the last entry. The cache is valid as
// long as the entry's state word is the same; every change of an entry changes that
// word. A Memo is for one goroutine at a time and for one table. The zero Memo is
// empty.
//
//	for mem, f := m.Check(t, access); len(mem) != 0; mem = m.Next() {
type Memo struct {
	stag  STag
	entry *entry // nil: nothing is known

	// Fields of the entry, copied while its state was this.
	state  word
	start  uint64
	length uint64
	base   uint64
	pd     PD
	qp     uint32
	rights Rights
	direct bool

	// State of the last access.
	rest     []byte // its octets behind the piece that was returned last; nil: none
	maxPiece uint32
}

// Check decides about one access as Table.Check does, and returns its first piece.
// Next returns the others.
func (m *Memo) Check(t *Table, a Access) (mem []byte, f Fault) {
	if a.Len == 0 {
		m.rest = nil
		return nil, OK
	}
	if (m.entry == nil || m.stag != a.STag) && !m.find(t, a.STag) {
		m.rest = nil
		t.refusals[BadSTag].Add(1)
		return nil, BadSTag
	}
	where, f := m.judge(t, &a)
	for !m.entry.unchanged(m.state) { // then it is not valid, or valid anew
		m.read()
		where, f = m.judge(t, &a)
	}
	if f != OK {
		m.rest = nil
		t.refusals[f].Add(1)
		return nil, f
	}
	from := a.TO - m.start
	to := from + uint64(a.Len)
	mem = where.octets()[from:to:to]
	if t.maxPiece != 0 {
		mem = m.first(mem, t.maxPiece)
	}
	return mem, OK
}

// first cuts octets into pieces of at most so many octets, and returns the first.
func (m *Memo) first(octets []byte, most uint32) []byte {
	m.rest, m.maxPiece = octets, most
	return m.cut()
}

// Next returns the next piece of the last access, behind the one that Check or Next
// returned last; nil if there is none. Check has allowed it already. It may be touched
// as long as the first piece.
func (m *Memo) Next() []byte {
	if m.rest == nil {
		return nil
	}
	return m.cut()
}

// cut takes the next piece off the rest.
func (m *Memo) cut() []byte {
	n := min(len(m.rest), int(m.maxPiece))
	piece := m.rest[:n:n]
	if m.rest = m.rest[n:]; len(m.rest) == 0 {
		m.rest = nil
	}
	return piece
}

// External reports whether the octets that Check returned last are outside of the
// region heap. The program may unmap such memory, so access to it may fault.
func (m *Memo) External() bool {
	space, _ := place(m.base)
	return space != spaceHeap
}

// find points m at the entry that s names by its index.
func (m *Memo) find(t *Table, s STag) bool {
	e, ok := t.at(s)
	if !ok {
		return false
	}
	m.stag, m.entry = s, e
	m.read()
	return true
}

// read copies the entry's fields. The copy is valid if the state is the same
// afterwards.
func (m *Memo) read() {
	e := m.entry
	m.state = e.load()
	m.start, m.length, m.base = e.start.Load(), e.length.Load(), e.base.Load()
	m.pd, m.qp, m.rights = PD(e.pd.Load()), e.qp.Load(), e.rights()
	m.direct = e.translation.Load()&translationKind == translationDirect
}

// judge decides about the access by the cached fields, and finds its octets.
func (m *Memo) judge(t *Table, a *Access) (where memory, f Fault) {
	switch {
	case !m.state.serves(a):
		return memory{}, BadSTag
	case m.pd != a.PD || m.qp != 0 && m.qp != a.QP:
		return memory{}, WrongPD
	case a.Right == 0 || m.rights&a.Right != a.Right:
		return memory{}, NoRight
	case a.TO > math.MaxUint64-uint64(a.Len-1):
		return memory{}, Wrap
	case a.TO < m.start || !inside(a.TO-m.start, uint64(a.Len), m.length):
		return memory{}, OutOfBounds
	}
	where, ok := m.memory(t)
	if !ok {
		return memory{}, BadSTag
	}
	return where, OK
}

// serves reports whether key, validity and type are right. Windows are for
// peers only.
func (w word) serves(a *Access) bool {
	if w.key() != a.STag.Key() || !w.valid() {
		return false
	}
	return w.kind() == KindRegion || w.kind() == KindWindow && a.Right&^remote == 0
}

// memory is the place of octets. It is not a slice yet: its parts may belong to
// different entries until the state has been compared again, and a slice could then be
// too long.
type memory struct {
	first     *byte
	off, size uint64 // octets, behind first
}

// octets returns the slice. The caller must have found the entry's state unchanged.
func (w memory) octets() []byte { return octetsAt(w.first, w.off+w.size)[w.off:] }

// memory finds the entry's octets. ok is false where they are not within this
// process's reach, and where the entry is being written.
func (m *Memo) memory(t *Table) (where memory, ok bool) {
	if !m.direct {
		return memory{}, false
	}
	space, off := place(m.base)
	var whole uint64
	switch space {
	case spaceHeap:
		where.first, whole = firstOf(t.heap), uint64(len(t.heap))
	case spaceExternal:
		where.first, whole = t.external.at(m.stag.Index())
	}
	where.off, where.size = off, m.length
	return where, where.first != nil && inside(off, m.length, whole)
}

// belongs reports whether the entry is in the protection domain and, if it is
// bound to a queue pair, to this one (RFC 5041 §8.2: the STag is associated with
// the stream).
func (e *entry) belongs(pd PD, qp uint32) bool {
	bound := e.qp.Load()
	return PD(e.pd.Load()) == pd && (bound == 0 || bound == qp)
}
