package tpt

// These are the parts of the base of an indirect entry: an index of att, and the number
// of the page in the list that has the first octet. A window has the page list of its
// region, and begins at another page.
const (
	baseIndex = 1<<32 - 1
	basePage  = 32 // first bit
)

// memory says where octets lie, until it is safe to make a slice of them. Before the
// state has been compared again, the fields may come from different entries. A slice
// could then be too long.
type memory struct {
	first     *byte
	off, size uint64 // octets; off is the distance from first
}

// octets returns the octets as a slice. The caller must have found the entry's state
// unchanged.
func (w memory) octets() []byte { return octetsAt(w.first, w.off+w.size)[w.off:] }

// direct reports whether the entry's octets are contiguous.
func (m *Memo) direct() bool { return m.translation&translationKind == translationDirect }

// memory finds the octets of a direct entry. ok is false if this process cannot access
// the octets, or if another goroutine is writing the entry.
func (m *Memo) memory(t *Table) (where memory, ok bool) {
	space, off := place(m.base)
	var whole uint64
	switch space {
	case spaceHeap:
		where.first, whole = firstOf(t.heap), uint64(len(t.heap))
	case spaceExternal:
		where.first, whole = t.external.at(m.home())
	}
	where.off, where.size = off, m.length
	return where, where.first != nil && inside(off, m.length, whole)
}

// home returns the index of the entry that keeps the external memory: for a window the
// region, which stays registered while the window is bound.
func (m *Memo) home() uint32 {
	if m.parent != 0 {
		return m.parent
	}
	return m.stag.Index()
}

// page returns the first piece of n octets from position pos of a page list on: those
// in one page. Position 0 is the beginning of the first page. Next returns the other
// pieces. page returns nil if att does not lead to memory that this process can access.
// The caller must have found the entry's state unchanged. The pages stay in att until
// the Reader's Leave.
func (m *Memo) page(t *Table, pos, n uint64) []byte {
	shift := m.translation >> translationPage & 63
	if m.left = 0; pos>>shift != m.number && !m.look(t, pos>>shift) {
		return nil
	}
	in := pos & (1<<shift - 1)
	if whole := n; n > 1<<shift-in {
		n = 1<<shift - in
		m.table, m.pos, m.left = t, pos+n, whole-n
	}
	space, off := place(m.value)
	if space != spaceHeap {
		return m.externalPage(t, in, n)
	}
	heap := t.heap
	off = (off + in) & (1<<spaceShift - 1)
	if end := off + n; off <= end && end <= uint64(len(heap)) {
		return heap[off:end:end]
	}
	m.left = 0
	return nil
}

// externalPage returns n octets of an external page from octet in of the page on.
func (m *Memo) externalPage(t *Table, in, n uint64) []byte {
	space, lead := place(m.value)
	first, whole := t.outer.at(m.index)
	if space != spaceExternal || first == nil || in < lead || !inside(in-lead, n, whole) {
		m.left = 0
		return nil
	}
	return octetsAt(first, whole)[in-lead:][:n:n]
}

// look caches the entry of att for the page of this number. It returns false if att has
// no such entry.
func (m *Memo) look(t *Table, number uint64) bool {
	i, n := m.base&baseIndex, m.base>>basePage+number
	if m.translation&translationKind == translationSecond {
		root := i + n>>leafBits
		if root >= uint64(len(t.att)) {
			return false
		}
		i, n = t.att[root].Load(), n&(leafLen-1)
	}
	if i += n; i >= uint64(len(t.att)) {
		return false
	}
	m.number, m.index, m.value = number, uint32(i), t.att[i].Load()
	m.proven = 0 // it is about another page
	return true
}

// prove records which octets around the last access the next accesses may use without
// decide: all of a direct entry, or one page. An access must have been allowed.
func (m *Memo) prove(t *Table) {
	if m.proven != 0 || t.maxPiece != 0 || m.entry == nil {
		return
	}
	base, from, n := m.base, uint64(0), m.length
	if !m.direct() {
		base, from, n = m.aroundPage()
	}
	space, off := place(base)
	if space != spaceHeap || !inside(off, n, uint64(len(t.heap))) || n == 0 {
		return
	}
	m.octets, m.from, m.run = &t.heap[off], m.start+from, n
	if m.proven = m.rights; m.state.kind() == KindWindow {
		m.proven &= remote
	}
}

// aroundPage returns the octets of the entry in the cached page: the base of the first
// one, its distance from the entry's first octet, and their number.
func (m *Memo) aroundPage() (base, from, n uint64) {
	shift := m.translation >> translationPage & 63
	low, first := m.number<<shift, uint64(m.first)
	high := min(low+1<<shift, first+m.length)
	if low >= first {
		return m.value, low - first, high - low
	}
	space, off := place(m.value)
	off = (off + first - low) & (1<<spaceShift - 1)
	return uint64(space)<<spaceShift | off, 0, high - first
}

// from returns the translation of a window that begins at octet from of the entry.
func (e *entry) from(from uint64) (f fields) {
	translation := e.translation.Load()
	f.base, f.first = e.base.Load(), e.first.Load()
	f.kind, f.outside = translation&translationKind, translation&translationOutside != 0
	shift := translation >> translationPage & 0xff
	if shift != 0 {
		f.pageSize = 1 << (shift & 63)
	}
	if f.kind == translationDirect {
		f.base += from
		return f
	}
	pos := uint64(f.first) + from
	f.base += pos >> (shift & 63) << basePage
	f.first = uint32(pos & (f.pageSize - 1))
	return f
}

// extent describes length octets of the translation, for tools.
func (f *fields) extent(length uint64) (external bool, off, size, pages uint64) {
	if f.pageSize != 0 {
		pages = (uint64(f.first) + length + f.pageSize - 1) / f.pageSize
	}
	if f.kind != translationDirect {
		return f.outside, 0, f.pageSize, pages
	}
	space, off := place(f.base)
	return space == spaceExternal, off, f.pageSize, pages
}

// Memory calls f with each piece of n octets from tagged offset to of an entry on, in
// order. The entry may be invalid, also when f runs, so f may use the piece only for
// comparisons. Memory returns false if there is no such entry, or if this process cannot
// access all of the octets.
func (t *Table) Memory(s STag, to uint64, n uint32, f func(mem []byte)) bool {
	e, ok := t.at(s)
	if !ok {
		return false
	}
	m := Memo{stag: s, entry: e}
	var where memory
	for {
		m.read()
		ok = m.state.known(s) && to >= m.start && inside(to-m.start, uint64(n), m.length)
		if ok && m.direct() {
			where, ok = m.memory(t)
		}
		if e.unchanged(m.state) {
			break
		}
	}
	switch {
	case !ok:
		return false
	case m.direct():
		f(where.octets()[to-m.start:][:n])
		return true
	}
	for mem := m.page(t, uint64(m.first)+to-m.start, uint64(n)); mem != nil; mem = m.Next() {
		f(mem)
		n -= uint32(len(mem))
	}
	return n == 0
}
