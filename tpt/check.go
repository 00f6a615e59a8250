package tpt

import "math"

// Check decides whether the table allows an access. It checks all octets of the access,
// and returns the first piece of them: octets that are contiguous in memory. If this
// piece is shorter than the access, use a Memo, whose Next returns the other pieces.
// The caller may use the octets until the Reader of the calling engine calls Leave: an
// invalidation waits for that Leave. Check allows an access of no octets without a look
// at the STag (RFC 5041 §7).
//
// Check tests the index, key, validity, type, protection domain and queue pair, rights,
// wrap, and bounds, in this order. The first failure decides the Fault. If all succeed, the
// result can still be Unresolved: the memory is another member's (Attach).
func (t *Table) Check(a Access) (mem []byte, f Fault) {
	var m Memo
	return m.decide(t, a)
}

// Memo checks accesses and caches the fields of the last entry. The cache is valid as
// long as the entry's state word stays the same, because every change of an entry
// changes this word. Only one goroutine at a time may use a Memo. A Memo belongs to one
// table. The zero Memo is empty.
//
//	for mem, f := m.Check(t, access); len(mem) != 0; mem = m.Next() {
type Memo struct {
	stag  STag
	entry *entry // nil if the cache is empty

	// These are copies of the entry's fields. All of them were read while the entry's
	// state word had the value of the field state.
	state       word
	start       uint64
	length      uint64
	base        uint64
	first       uint32 // octets of the first page in front of the first octet
	translation uint32
	pd          PD
	qp          uint32
	rights      Rights
	touch       bool   // the entry is of one touch
	deny        uint16 // bits of state that count as 0
	parent      uint32 // index of a window's region, or 0

	// proven has the rights that the entry gives to run octets from tagged offset from on.
	// These octets are contiguous in the region heap, and begin at octets. decide has allowed
	// an access to some of them in this state. proven is 0 if nothing is known: for external
	// memory, and if pieces have a limited size.
	proven    Rights
	from, run uint64
	octets    *byte

	// These are copies of an entry of att, which does not change either while the state
	// word stays the same.
	number uint64 // number of the page, counted from the entry's first page
	index  uint32 // of the entry of att
	value  uint64

	// These fields belong to the last access.
	rest      []byte // octets behind the piece that was returned last, or nil
	maxPiece  uint32
	table     *Table
	pos, left uint64 // in pages: position of the next octet, and octets that are left
}

// Check decides about one access as Table.Check does, and returns the first piece. Next
// returns the other pieces.
func (m *Memo) Check(t *Table, a Access) (mem []byte, f Fault) {
	if m.stag == a.STag && a.Right != 0 && m.proven&a.Right == a.Right && m.pd == a.PD && (m.qp == 0 || m.qp == a.QP) {
		// No entry reaches beyond 2^64, so that off is too large if a.TO is below m.from.
		off, n := a.TO-m.from, uint64(a.Len)
		if n != 0 && off < m.run && n <= m.length-(a.TO-m.start) && m.entry.unchanged(m.state) {
			m.left = 0
			if n > m.run-off { // the rest is in the next pages
				n = m.later(t, n, m.run-off)
			}
			return octetsFrom(m.octets, off, n), OK
		}
	}
	if mem, f = m.decide(t, a); len(mem) != 0 {
		m.prove(t)
	}
	return mem, f
}

// later leaves the octets of an access behind the first ones to Next. It returns first.
func (m *Memo) later(t *Table, n, first uint64) uint64 {
	m.table, m.pos, m.left = t, (m.number+1)<<(m.translation>>translationPage&63), n-first
	return first
}

// decide does every check of an access.
func (m *Memo) decide(t *Table, a Access) (mem []byte, f Fault) {
	if a.Len == 0 {
		m.rest, m.left = nil, 0
		return nil, OK
	}
	if m.entry == nil || m.stag != a.STag {
		m.find(t, a.STag)
	}
	where, f := m.judge(t, &a)
	for !m.entry.unchanged(m.state) { // the entry has become invalid, or was registered anew
		m.read()
		where, f = m.judge(t, &a)
	}
	if f != OK {
		return m.refuse(t, f)
	}
	from := a.TO - m.start
	if to := from + uint64(a.Len); where.first != nil {
		mem = where.octets()[from:to:to]
	} else if mem = m.page(t, uint64(m.first)+from, uint64(a.Len)); mem == nil {
		return m.refuse(t, BadSTag)
	}
	if t.maxPiece != 0 {
		mem = m.split(mem, t.maxPiece)
	}
	return mem, OK
}

// refuse counts a refused access, which has no pieces. Unresolved is not a refusal yet.
func (m *Memo) refuse(t *Table, f Fault) ([]byte, Fault) {
	m.rest, m.left = nil, 0
	if f != Unresolved {
		t.refusals[f].Add(1)
	}
	return nil, f
}

// split splits octets into pieces of at most most octets, and returns the first piece.
func (m *Memo) split(octets []byte, most uint32) []byte {
	m.rest, m.maxPiece = octets, most
	return m.cut()
}

// Next returns the next piece of the last access, or nil. Check has already allowed all
// pieces. The caller may use every piece as long as the first.
func (m *Memo) Next() []byte {
	if m.left == 0 && m.rest == nil {
		return nil
	}
	return m.next()
}

func (m *Memo) next() []byte {
	if m.rest != nil {
		return m.cut()
	}
	mem := m.page(m.table, m.pos, m.left)
	m.prove(m.table)
	if mem != nil && m.table.maxPiece != 0 {
		mem = m.split(mem, m.table.maxPiece)
	}
	return mem
}

// cut removes the next piece from m.rest and returns it.
func (m *Memo) cut() []byte {
	n := min(len(m.rest), int(m.maxPiece))
	piece := m.rest[:n:n]
	if m.rest = m.rest[n:]; len(m.rest) == 0 {
		m.rest = nil
	}
	return piece
}

// External reports whether the octets that Check returned last are outside of the
// region heap. The program may unmap external memory, so access to it may fault.
func (m *Memo) External() bool {
	if m.direct() {
		space, _ := place(m.base)
		return space != spaceHeap
	}
	return m.translation&translationOutside != 0
}

// STag returns the STag of the last access.
func (m *Memo) STag() STag { return m.stag }

// OneTouch reports whether the entry that Check allowed last is of one touch. touched
// says that a message has used it already (see Touch).
func (m *Memo) OneTouch() (enabled, touched bool) { return m.touch, m.state.touched() }

// find caches the entry at the index of s. For an impossible index it caches another entry,
// which then does not count as valid. So a refusal takes as long as that of a wrong key.
func (m *Memo) find(t *Table, s STag) {
	i, n := s.Index(), uint32(len(t.entries))
	impossible := uint64(int64(n-2)-int64(i-1)) >> 63 // 1 or 0, without a branch
	m.deny = uint16(wordValid) * uint16(impossible)
	m.stag, m.entry = s, &t.entries[i&(n-1)]
	m.read()
}

// read copies the entry's fields. The copy is valid if the state is still the same
// after read.
func (m *Memo) read() {
	e := m.entry
	m.number = math.MaxUint64 // no page has this number
	m.left = 0                // only an access to pages sets it
	m.proven = 0
	m.state = e.load()
	m.start, m.length, m.base = e.start.Load(), e.length.Load(), e.base.Load()
	access := e.access.Load()
	m.rights, m.touch = Rights(access&accessRights), access&accessOneTouch != 0
	m.pd, m.qp, m.parent = PD(e.pd.Load()), e.qp.Load(), e.parent.Load()
	m.translation, m.first = e.translation.Load(), e.first.Load()
}

// judge decides about the access from the cached fields, and finds the octets of a
// direct entry. For pages, where is zero. Unresolved means that the access is allowed, and
// that the memory is another process's which this process has not mapped: see Attach.
func (m *Memo) judge(t *Table, a *Access) (where memory, f Fault) {
	switch {
	case !(m.state &^ word(m.deny)).serves(a):
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
	if (m.translation^t.mine)&plain != 0 { // pages, or an entry of another member
		return m.elsewhere(t, a)
	}
	where, ok := m.memory(t)
	if !ok {
		return memory{}, BadSTag
	}
	return where, OK
}

// serves reports whether the key matches, the entry is valid, and its type suits the
// access. Only peers may use windows. One comparison decides about key and validity, so that
// a peer cannot tell by the time which of them is wrong.
func (w word) serves(a *Access) bool {
	if w&(wordKey|wordValid|wordBusy) != wordValid|word(a.STag.Key()) {
		return false
	}
	return w.kind() == KindRegion || w.kind() == KindWindow && a.Right&^remote == 0
}

// belongs reports whether the entry with state w is in the protection domain. If the
// entry is bound to a queue pair, that queue pair must be qp (RFC 5041 §8.2: the STag is
// associated with the stream). A window that is not bound is of no queue pair.
func (e *entry) belongs(w word, pd PD, qp uint32) bool {
	bound := e.qp.Load()
	if w.kind() == KindWindow && !w.valid() {
		bound = 0
	}
	return PD(e.pd.Load()) == pd && (bound == 0 || bound == qp)
}
