package tpt

import "sync/atomic"

// Tags are the entries of one iSCSI connection. The entry of a command has the command's
// Initiator Task Tag as its STag, or the Target Transfer Tag of the command's data. Both
// are 32 bits, opaque to the peer (RFC 7143 §11.2.1.8, §11.7.4). An entry of Tags leads to no memory: its
// base is the number of its slot, and the owner of the connection keeps the command and
// its buffers in that slot (US 7,299,266: the address field points to the WQE).
//
// The entries are of KindISCSI. Check of the Table refuses that kind, and Check of Tags
// refuses all others. So an RDMA peer cannot pass an iSCSI entry, and an iSCSI peer cannot
// pass a region. The functions that name an STag, such as Invalidate, do not know it either.
//
// Only the holder of the connection's step may call Bind, Revoke and Check. They never
// wait or lock, and allocate nothing for entries of the table. Any goroutine may call Withdraw.
type Tags struct {
	table *Table
	pd    PD
	n     int                        // number of slots
	slots []uint32                   // index of the entry of each slot, if the entries are in the table
	own   []atomic.Pointer[tagBlock] // entries that are not in the table, by slot; nil: they are there
}

// tagBlock is a part of the entries that are not in the table. Bind makes a block when one of
// its slots is first used.
type tagBlock [4]entry

// noTag is the value with which iSCSI says that a PDU has no tag.
const noTag STag = 0xffffffff

// MaxTags is the largest number of slots of one connection.
const MaxTags = 1 << 16

// ReserveTags takes n entries for the commands of a connection, 1 to MaxTags, all or
// none. They count in the domain's share of the table until Release. Errors: ErrPD,
// ErrQuota, ErrTableFull, ErrForeign, ErrMemory if n is out of range.
func (t *Table) ReserveTags(pd PD, n int) (*Tags, error) {
	if n < 1 || n > MaxTags {
		return nil, fail(ErrMemory, "reserve %d iSCSI tags: choose 1 to %d", n, MaxTags)
	}
	g := &Tags{table: t, pd: pd, n: n, slots: make([]uint32, n)}
	keys := make([]uint8, n)
	err := t.takeTags(g, keys)
	for short(err) && t.await() {
		err = t.takeTags(g, keys)
	}
	if err != nil {
		return nil, err
	}
	return g, t.lockTags(g, keys)
}

// OwnTags is ReserveTags for a connection of the kernel's TCP. The entries are not in the
// table, and do not count there: the entries of the table are far from each other, so that
// those of one connection would take up to a page of memory each. They take memory when Bind
// first uses them. Errors: ErrMemory if n is out of range.
func (t *Table) OwnTags(pd PD, n int) (*Tags, error) {
	if n < 1 || n > MaxTags {
		return nil, fail(ErrMemory, "make %d iSCSI tags: choose 1 to %d", n, MaxTags)
	}
	return &Tags{table: t, pd: pd, n: n, own: make([]atomic.Pointer[tagBlock], (n+len(tagBlock{})-1)/len(tagBlock{}))}, nil
}

// index returns the index of the entry of slot i.
func (g *Tags) index(i int) uint32 {
	if g.own != nil {
		return uint32(i + 1)
	}
	return g.slots[i]
}

// block makes the block of slot i, unless it is there. Only Bind calls it.
func (g *Tags) block(i int) {
	first := i / len(tagBlock{}) * len(tagBlock{})
	p := &g.own[i/len(tagBlock{})]
	if p.Load() != nil {
		return
	}
	b := new(tagBlock)
	for k := range b {
		b[k].fill(fields{owner: g.table.owner, pd: g.pd, base: uint64(first + k)})
		b[k].publish(b[k].load().next(0, KindISCSI, 0))
	}
	p.Store(b)
}

// at returns the entry with the index of s, whether s is valid or not.
func (g *Tags) at(s STag) (e *entry, ok bool) {
	if g.own == nil {
		return g.table.at(s)
	}
	i := int(s.Index()) - 1
	if i < 0 || i >= g.n {
		return nil, false
	}
	b := g.own[i/len(tagBlock{})].Load()
	if b == nil {
		return nil, false
	}
	return &b[i%len(b)], true
}

// takeTags takes the entries of g, and chooses their keys.
func (t *Table) takeTags(g *Tags, keys []uint8) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	d, n := t.pds[g.pd], uint32(len(g.slots))
	switch {
	case d == nil:
		return fail(ErrPD, "reserve iSCSI tags in protection domain %d: there is none of that number: make one first", g.pd)
	case d.entries > t.perPD || n > t.perPD-d.entries:
		return fail(ErrQuota, "reserve %d iSCSI tags in protection domain %d: it has %d of its %d entries: reserve fewer, or raise the domain's share of the table", n, g.pd, d.entries, t.perPD)
	case n > t.slots.free:
		return fail(ErrTableFull, "reserve %d iSCSI tags: the table has %d free entries: reserve fewer, or make the table larger", n, t.slots.free)
	}
	for i := range g.slots {
		index, ok := t.slots.take()
		if !ok { // another process has written to a chain of free entries
			for _, taken := range g.slots[:i] {
				t.slots.give(taken)
			}
			return fail(ErrForeign, "reserve %d iSCSI tags: another process writes to the table: let only one own the table", n)
		}
		g.slots[i], keys[i] = index, t.slots.key(t.entries[index].load())
	}
	d.entries += n
	return nil
}

// lockTags makes the entries that takeTags took entries of their slots. If another
// process writes to one of them, lockTags frees the others.
func (t *Table) lockTags(g *Tags, keys []uint8) error {
	for i, index := range g.slots {
		e := &t.entries[index]
		old := e.load()
		if old.kind() != KindFree || old.busy() || !e.swap(old, old.next(keys[i], KindISCSI, wordBusy)) {
			t.abandon(g, i)
			return fail(ErrForeign, "reserve iSCSI tags in protection domain %d: another process writes to entry %d: let only one own the table", g.pd, index)
		}
		e.fill(fields{owner: t.owner, pd: g.pd, base: uint64(i)})
		e.publish(e.load().next(keys[i], KindISCSI, 0))
	}
	return nil
}

// abandon gives up the entry of slot bad, and frees the others.
func (t *Table) abandon(g *Tags, bad int) {
	for i, index := range g.slots {
		e := &t.entries[index]
		switch {
		case i == bad:
			t.disown(g.pd)
		case i > bad:
			e.fill(fields{pd: g.pd})
			fallthrough
		default:
			t.free(index)
		}
	}
	g.clear()
}

// clear makes g have no slots.
func (g *Tags) clear() { g.n, g.slots = 0, nil }

// Len returns the number of slots.
func (g *Tags) Len() int { return g.n }

// Bind makes the entry of slot i valid for length octets, under the next key, and returns
// its STag. Offsets begin at 0. r are the rights of the peer: RemoteWrite for octets that
// the peer's PDUs bring, RemoteRead for octets that it may ask for, both, or none. The
// entry must not be valid. The STag is never 0xffffffff, which means no tag in iSCSI, and
// its index is never 0.
func (g *Tags) Bind(i int, length uint32, r Rights) STag {
	if g.own != nil {
		g.block(i)
	}
	index := g.index(i)
	e, _ := g.at(NewSTag(index, 0))
	w := e.load()
	s := NewSTag(index, w.key()+1)
	if s == noTag {
		s = NewSTag(index, 0)
	}
	// The entry is not valid, so no reader uses these fields. Bind therefore need not make
	// the entry BUSY first.
	e.length.Store(uint64(length))
	e.access.Store(uint32(r))
	e.publish(w.next(s.Key(), KindISCSI, wordValid))
	return s
}

// Revoke makes the entry of slot i invalid. The next Check sees it. The caller is the
// holder of the step, so no other engine uses the slot, and there is nothing to wait for.
func (g *Tags) Revoke(i int) {
	if e, ok := g.at(NewSTag(g.index(i), 0)); ok {
		e.publish(e.load().revoked())
	}
}

// Withdraw makes the entry of s invalid for a caller that does not hold the step. It
// reports whether s was valid. The step may use the slot until Passed returns true for the
// ticket. Withdraw never waits, locks or allocates.
func (g *Tags) Withdraw(s STag) (Ticket, bool) {
	e, ok := g.at(s)
	for ok && g.owns(s.Index(), e) {
		w := e.load()
		if !g.serves(w, s) {
			break
		}
		if e.swap(w, w.revoked()) {
			return g.table.epochs.ticket(), true
		}
	}
	return 0, false
}

// Check decides whether a PDU of the peer may name s, and access n octets from offset off
// on with the right r. It returns the slot. n may be 0, and r may be 0: a PDU without data
// must name a valid entry too. The checks are, in this order (US 7,299,266, FIG. 17B):
// index, validity, kind, key (BadSTag); protection domain and connection (WrongPD);
// bounds (OutOfBounds); rights (NoRight). The first failure decides the Fault.
func (g *Tags) Check(s STag, r Rights, off, n uint32) (i int, f Fault) {
	e, ok := g.at(s)
	if !ok {
		return 0, g.refuse(BadSTag)
	}
	w := e.load()
	slot := e.base.Load()
	switch {
	case !g.serves(w, s):
		f = BadSTag
	case PD(e.pd.Load()) != g.pd || !g.has(slot, s.Index()):
		f = WrongPD
	case !inside(uint64(off), uint64(n), e.length.Load()):
		f = OutOfBounds
	case Rights(e.access.Load())&r != r:
		f = NoRight
	}
	if !e.unchanged(w) { // only Withdraw changes the state beside the step
		f = BadSTag
	}
	if f != OK {
		return 0, g.refuse(f)
	}
	return int(slot), OK
}

// Slot returns the slot whose entry has the index of s, whether s is valid or not. ok is
// false if the entry is of another connection, or of none.
func (g *Tags) Slot(s STag) (i int, ok bool) {
	e, ok := g.at(s)
	if !ok || !g.owns(s.Index(), e) {
		return 0, false
	}
	return int(e.base.Load()), true
}

// serves reports whether the state w is that of a valid entry of the STag s.
func (g *Tags) serves(w word, s STag) bool {
	return w.valid() && w.kind() == KindISCSI && w.key() == s.Key()
}

// owns reports whether the entry at the index is one of these.
func (g *Tags) owns(index uint32, e *entry) bool {
	return e.load().kind() == KindISCSI && g.has(e.base.Load(), index)
}

// has reports whether the slot has the entry at the index. A slot that an entry names may
// be wrong, because the entry may be of another connection.
func (g *Tags) has(slot uint64, index uint32) bool {
	return slot < uint64(g.n) && g.index(int(slot)) == index
}

func (g *Tags) refuse(f Fault) Fault {
	g.table.refusals[f].Add(1)
	return f
}

// Release frees the entries. The caller must have ended the connection's steps. Release
// waits for the engines, as Deregister does. Release may be called twice.
func (g *Tags) Release() {
	t := g.table
	if g.own != nil {
		g.clear()
		return
	}
	for _, index := range g.slots {
		e := &t.entries[index]
		for w := e.load(); !e.swap(w, w.taken()); w = e.load() {
		}
	}
	if len(g.slots) != 0 {
		t.epochs.wait(t.epochs.ticket())
	}
	for _, index := range g.slots {
		t.free(index)
	}
	g.clear()
}
