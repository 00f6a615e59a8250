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
	entries  []entry
	external outside // memory of direct entries, by index of the entry
	att      att
	outer    outside // memory of pages, by index in att
	heap     []byte
	owner    uint16
	perPD    uint32
	maxPages uint32 // places for pages of one protection domain
	maxPiece uint32

	// Any goroutine may use these fields without mu.
	epochs   epochs
	retired  retired
	refusals [Faults]atomic.Uint64

	// mu protects the fields below. No engine takes mu.
	mu     sync.Mutex
	slots  slots
	pds    map[PD]*domain
	lastPD PD
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
		maxPages: c.PagesPerPD,
		maxPiece: c.MaxPiece,
		pds:      map[PD]*domain{},
		outer:    newOutside(c.Pages),
		runs:     newRuns(c.Pages),

		translations: map[uint32]*translation{},
	}
	t.epochs.init()
	if t.att, err = c.att(); err != nil {
		return nil, fmt.Errorf("translation and protection table: %w", err)
	}
	if c.Memory == nil {
		t.entries = make([]entry, c.Entries)
	} else {
		if t.entries, err = entriesAt(c.Memory); err != nil {
			return nil, fmt.Errorf("translation and protection table: %w", err)
		}
		t.inherit()
	}
	t.slots = newSlots(t.entries, c.Seed, mostBatches)
	return t, nil
}

// inherit frees the entries that an earlier owner left in the memory. The regions ended
// with that owner. The owner may also have left an entry half written.
func (t *Table) inherit() {
	for i := range t.entries {
		e := &t.entries[i]
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
	if len(t.pds) == math.MaxUint32 {
		return 0, fail(ErrPD, "all protection domains are in use: free some")
	}
	for {
		t.lastPD++
		if _, taken := t.pds[t.lastPD]; !taken && t.lastPD != 0 {
			t.pds[t.lastPD] = &domain{}
			return t.lastPD, nil
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
		return 0, 0, fail(ErrTableFull, "register in protection domain %d: all %d entries of the table are in use: deregister some, or make the table larger", pd, len(t.entries)-1)
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

// at returns the entry at the index of s. ok is false if the index is 0 or too large. The
// entry is another one then, which the caller may look at but not use.
func (t *Table) at(s STag) (e *entry, ok bool) {
	i, n := s.Index(), uint32(len(t.entries))
	return &t.entries[i&(n-1)], i-1 < n-1
}

// inside reports whether [off, off+n) lies within [0, size).
func inside(off, n, size uint64) bool { return off <= size && n <= size-off }
