package tpt

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Table is the table of one adapter. It is safe for concurrent use. The data path
// (Check, StartInvalidate, Passed, and a Reader's Enter and Leave) takes no lock and
// does not allocate. The verbs take a mutex.
type Table struct {
	// These fields do not change after New.
	entries  []entry // all of the table
	own      []entry // the entries that this process hands out: all, or a part in a group
	first    uint32  // index of own[0]
	mine     uint32  // the field translation of a direct entry of this process
	spaces   spaces  // the memory of the other members of the group; nil: the table is in no group
	external outside // memory of direct entries, by index of the entry
	att      att
	outer    outside // memory of pages, by index in att
	heap     []byte
	owner    uint16
	perPD    uint32
	pdBase   PD     // bits that all numbers of NewPD have
	pdMask   PD     // bits in which they differ
	maxPages uint32 // places for pages of one protection domain
	maxPiece uint32
	keep     bool // see Config.Keep

	// Any goroutine may use these fields without mu.
	epochs   epochs
	retired  retired
	refusals [Faults]atomic.Uint64

	// mu protects the fields below. No engine takes mu.
	mu     sync.Mutex
	slots  slots
	pds    map[PD]*domain
	lastPD PD // the last number of NewPD, without pdBase
	runs   runs

	translations map[uint32]*translation // translations of page lists and of shared memory, by index of the entry
}

// domain is what a protection domain uses. The holder of Table.mu owns it.
type domain struct {
	entries uint32
	places  uint32 // places for pages; a translation counts once for each of its regions
}

// New makes a table. The error describes every fault of c.
func New(c Config) (*Table, error) {
	c, err := c.fill()
	if err != nil {
		return nil, fmt.Errorf("translation and protection table: %w", err)
	}
	t := &Table{
		external: newOutside(c.Entries),
		heap:     c.Heap,
		owner:    c.Owner,
		perPD:    c.PerPD,
		pdMask:   math.MaxUint32,
		maxPages: c.PagesPerPD,
		maxPiece: c.MaxPiece,
		keep:     c.Keep,
		pds:      map[PD]*domain{},
		outer:    newOutside(c.Pages),
		runs:     newRuns(c.Pages),

		translations: map[uint32]*translation{},
	}
	t.epochs.init(c.Group.epochs())
	if t.att, err = c.att(); err != nil {
		return nil, fmt.Errorf("translation and protection table: %w", err)
	}
	if c.Memory == nil {
		t.entries = make([]entry, c.Entries)
	} else {
		if t.entries, err = entriesAt(c.Memory); err != nil {
			return nil, fmt.Errorf("translation and protection table: %w", err)
		}
	}
	t.own, t.mine = t.entries, uint32(c.Owner)<<translationOwner
	if g := c.Group; g != nil {
		t.enterGroup(g)
	}
	if c.Memory != nil && !c.Keep {
		t.inherit()
	}
	t.slots = newSlots(t.own, c.Seed, mostBatches)
	if t.slots.base = t.first; c.Keep {
		t.slots.empty()
	}
	return t, nil
}

// inherit frees the entries that an earlier owner left in the memory. The regions ended
// with that owner. The owner may also have left an entry half written.
func (t *Table) inherit() {
	for i := range t.own {
		e := &t.own[i]
		if w := e.load(); w != 0 {
			e.publish(w.taken())
			e.fill(fields{})
			e.publish(e.load().freed())
		}
	}
}

// NewPD allocates a protection domain.
func (t *Table) NewPD() (PD, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if uint64(len(t.pds)) >= uint64(t.pdMask) {
		return 0, fail(ErrPD, "all protection domains are in use: free some")
	}
	for {
		t.lastPD = (t.lastPD + 1) & t.pdMask
		pd := t.pdBase | t.lastPD
		if _, taken := t.pds[pd]; !taken && t.lastPD != 0 {
			t.pds[pd] = &domain{}
			return pd, nil
		}
	}
}

// FreePD frees a protection domain. FreePD waits for entries that engines have
// deregistered. The error is ErrPDBusy while the domain has other entries.
func (t *Table) FreePD(pd PD) error {
	err := t.freePD(pd)
	for errors.Is(err, ErrPDBusy) && t.await() {
		err = t.freePD(pd)
	}
	return err
}

func (t *Table) freePD(pd PD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	d := t.pds[pd]
	switch {
	case d == nil:
		return fail(ErrPD, "free protection domain %d: there is none of that number", pd)
	case d.entries != 0:
		return fail(ErrPDBusy, "free protection domain %d: it has %d entries: deregister them first", pd, d.entries)
	}
	delete(t.pds, pd)
	return nil
}

// acquire reserves a free entry for pd, and chooses the entry's key. If there is none,
// acquire waits for entries that engines have deregistered.
func (t *Table) acquire(pd PD) (index uint32, key uint8, err error) {
	index, key, err = t.tryAcquire(pd)
	for short(err) && t.await() {
		index, key, err = t.tryAcquire(pd)
	}
	return index, key, err
}

// short reports whether err says that there are too few entries.
func short(err error) bool { return errors.Is(err, ErrTableFull) || errors.Is(err, ErrQuota) }

func (t *Table) tryAcquire(pd PD) (index uint32, key uint8, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	d := t.pds[pd]
	switch {
	case d == nil:
		return 0, 0, fail(ErrPD, "register in protection domain %d: there is none of that number: make one first", pd)
	case d.entries >= t.perPD:
		return 0, 0, fail(ErrQuota, "register in protection domain %d: it has all of its %d entries: deregister some, or raise the domain's share of the table", pd, d.entries)
	}
	index, ok := t.slots.take()
	if !ok {
		return 0, 0, fail(ErrTableFull, "register in protection domain %d: all %d entries of the table are in use: deregister some, or make the table larger", pd, len(t.own)-1)
	}
	d.entries++
	return index, t.slots.key(t.entries[index].load()), nil
}

// lock reserves an entry of pd for an object of kind k, and sets it to BUSY. The caller
// must fill and publish the entry, which then has the returned STag.
func (t *Table) lock(pd PD, k Kind) (*entry, STag, error) {
	index, key, err := t.acquire(pd)
	if err != nil {
		return nil, 0, err
	}
	e := &t.entries[index]
	old := e.load()
	if old.kind() != KindFree || old.busy() || !e.swap(old, old.next(key, k, wordBusy)) {
		t.disown(pd)
		return nil, 0, fail(ErrForeign, "register in protection domain %d: another process writes to entry %d: let only one own the table", pd, index)
	}
	return e, NewSTag(index, key), nil
}

// disown gives up an entry that another process writes to. The table does not use the
// entry again.
func (t *Table) disown(pd PD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pds[pd].entries--
}

// at returns the entry of this process at the index of s. ok is false if there is none of
// that index. The entry is another one then, which the caller may look at but not use.
func (t *Table) at(s STag) (e *entry, ok bool) {
	i, n := s.Index()-t.first, uint32(len(t.own))
	return &t.own[i&(n-1)], i-1 < n-1
}

// inside reports whether [off, off+n) lies within [0, size).
func inside(off, n, size uint64) bool { return off <= size && n <= size-off }
