package tpt

import (
	"math"
	"math/bits"
)

// These are the limits of the page size of a page list, in octets. A page size is a
// power of two.
const (
	MinPageSize = 4 << 10
	MaxPageSize = 256 << 20
)

// translation is a page list in att, or memory that several entries share. The holder
// of Table.mu owns it.
type translation struct {
	regions int    // entries over the translation
	runs    []run  // entries of att
	places  uint32 // sum of the lengths of runs
}

// layout says how the octets of a list lie in pages.
type layout struct {
	size  uint64 // octets of a page; 0: the memory is one slice, and no page size is known
	first uint32 // octets of the first page in front of the first octet
	pages uint64
	heap  bool // all octets are in the region heap
}

// list returns the memory of the region in pieces.
func (r *Region) list() [][]byte {
	if r.Pages != nil {
		return r.Pages
	}
	return [][]byte{r.Memory}
}

// length returns the number of octets of the region.
func (r *Region) length() (sum uint64) {
	for _, mem := range r.list() {
		sum += uint64(len(mem))
	}
	return sum
}

// checkMemory checks the memory of a region.
func (r *Region) checkMemory() error {
	if r.Pages != nil {
		if err := r.checkPages(); err != nil {
			return err
		}
	}
	n := r.length()
	switch {
	case n == 0:
		return fail(ErrMemory, "register no memory: give at least one octet")
	case n >= 1<<spaceShift:
		return fail(ErrMemory, "register %d octets: want less than 2^%d", n, spaceShift)
	case n-1 > math.MaxUint64-r.Start:
		return fail(ErrMemory, "register %d octets from offset %#x: they reach past the largest offset: begin lower", n, r.Start)
	}
	return nil
}

// checkPages checks that the memory consists of whole pages, except at its two ends.
func (r *Region) checkPages() error {
	size := r.PageSize
	switch {
	case r.Memory != nil:
		return fail(ErrMemory, "register both a slice and a page list: give one of them")
	case len(r.Pages) > math.MaxUint32:
		return fail(ErrMemory, "register a list of %d elements: want at most %d", len(r.Pages), uint32(math.MaxUint32))
	case size < MinPageSize || size > MaxPageSize || bits.OnesCount64(size) != 1:
		return fail(ErrMemory, "register pages of %d octets: want a power of two, %d to %d", size, MinPageSize, MaxPageSize)
	}
	last := len(r.Pages) - 1
	for i, mem := range r.Pages {
		switch {
		case len(mem) == 0:
			return fail(ErrMemory, "register a page list: element %d is empty: leave it out", i)
		case i != 0 && i != last && uint64(len(mem))&(size-1) != 0:
			return fail(ErrMemory, "register a page list: element %d has %d octets: all elements but the first and the last must be whole pages of %d", i, len(mem), size)
		}
	}
	return nil
}

// layout returns how the memory of r lies in pages. The first element of a page list
// ends at the end of a page, so that its length gives the offset in the first page.
func (r *Region) layout(heap []byte) layout {
	list := r.list()
	l := layout{size: r.PageSize, heap: true}
	for _, mem := range list {
		_, in := offsetIn(heap, mem)
		l.heap = l.heap && in
	}
	if r.Pages == nil {
		l.size = 0
		return l
	}
	if len(list) > 1 {
		l.first = uint32(-uint64(len(list[0])) & (l.size - 1))
	}
	l.pages = (uint64(l.first) + r.length() + l.size - 1) / l.size
	return l
}

// runs returns how many entries of att the translation needs: first a run that base
// refers to, then the leaves. A direct translation needs none.
func (l *layout) runs(list int) (lengths []uint32) {
	switch {
	case list == 1:
		return nil
	case l.pages <= leafLen:
		return []uint32{uint32(l.pages)}
	}
	leaves := (l.pages + leafLen - 1) / leafLen
	lengths = make([]uint32, 1+leaves)
	lengths[0] = uint32(min(leaves, math.MaxUint32))
	for i := range leaves {
		lengths[1+i] = uint32(min(leafLen, l.pages-i*leafLen))
	}
	return lengths
}

// translate makes the translation of r for the entry at the index, and returns the
// fields that describe the translation. On error it changes nothing.
func (t *Table) translate(index uint32, r *Region) (fields, error) {
	list, l := r.list(), r.layout(t.heap)
	f := fields{length: r.length(), pageSize: l.size}
	if len(list) == 1 {
		f.base = t.direct(index, list[0])
		return f, nil
	}
	taken, err := t.reserve(index, r.PD, l, l.runs(len(list)))
	if err != nil {
		return fields{}, err
	}
	f.base, f.first, f.outside, f.kind = uint64(taken[0].at), l.first, !l.heap, translationFirst
	if len(taken) > 1 {
		f.kind = translationSecond
		for i, leaf := range taken[1:] {
			t.att[taken[0].at+uint32(i)].Store(uint64(leaf.at))
		}
		taken = taken[1:]
	}
	page := uint64(0)
	for i, mem := range list {
		lead := uint64(0)
		if i == 0 {
			lead = uint64(l.first)
		}
		for at := uint64(0); at < uint64(len(mem)); page++ {
			t.setPage(taken[page>>leafBits].at+uint32(page&(leafLen-1)), mem[at:], lead, l.heap)
			at, lead = at+l.size-lead, 0
		}
	}
	return f, nil
}

// direct returns the base of an entry whose memory is one slice.
func (t *Table) direct(index uint32, mem []byte) uint64 {
	if off, ok := offsetIn(t.heap, mem); ok {
		return spaceHeap<<spaceShift | off
	}
	t.external.keep(index, mem)
	return spaceExternal << spaceShift
}

// setPage writes an entry of att. mem begins in the page behind lead octets.
func (t *Table) setPage(i uint32, mem []byte, lead uint64, heap bool) {
	if heap {
		off, _ := offsetIn(t.heap, mem)
		t.att[i].Store(spaceHeap<<spaceShift | (off-lead)&(1<<spaceShift-1)) // may be in front of the heap
		return
	}
	t.outer.keep(i, mem)
	t.att[i].Store(spaceExternal<<spaceShift | lead)
}

// divert makes the page list of the entry at the index lead to mem, which must have as many
// octets. The entry may be valid: each page leads to the old memory or to the new.
func (t *Table) divert(index uint32, mem []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	leaves := t.translations[index].runs
	if len(leaves) > 1 {
		leaves = leaves[1:]
	}
	e := &t.entries[index]
	size, lead := uint64(1)<<(e.translation.Load()>>translationPage&63), uint64(e.first.Load())
	for page := uint64(0); len(mem) != 0; page++ {
		n := min(uint64(len(mem)), size-lead)
		t.setPage(leaves[page>>leafBits].at+uint32(page&(leafLen-1)), mem[:n], lead, false)
		mem, lead = mem[n:], 0
	}
}

// reserve reserves the runs of a page list for the entry at the index, which is of pd. If
// there is no room, reserve waits for page lists that engines have deregistered.
func (t *Table) reserve(index uint32, pd PD, l layout, lengths []uint32) ([]run, error) {
	taken, err := t.tryReserve(index, pd, l, lengths)
	for err != nil && t.await() {
		taken, err = t.tryReserve(index, pd, l, lengths)
	}
	return taken, err
}

func (t *Table) tryReserve(index uint32, pd PD, l layout, lengths []uint32) ([]run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	places := uint64(0)
	for _, n := range lengths {
		places += uint64(n)
	}
	if err := t.withinShare(pd, places); err != nil {
		return nil, err
	}
	taken, ok := t.runs.takeAll(lengths)
	if !ok {
		return nil, fail(ErrPagesFull, "register %d pages: %d of the table's %d places for pages are free: use larger pages, deregister page lists, or give the table more places", l.pages, t.runs.free, t.runs.size)
	}
	t.pds[pd].places += uint32(places)
	t.translations[index] = &translation{regions: 1, runs: taken, places: uint32(places)}
	return taken, nil
}

// withinShare returns ErrQuota if a protection domain may not use so many more places for pages.
// The caller must hold mu.
func (t *Table) withinShare(pd PD, places uint64) error {
	if used := t.pds[pd].places; uint64(used)+places > uint64(t.maxPages) {
		return fail(ErrQuota, "register a page list that takes %d places in protection domain %d: it has %d of its %d: use larger pages, deregister page lists, or raise the domain's share of the places", places, pd, used, t.maxPages)
	}
	return nil
}

// forget ends the use of a translation by the entry at the index. The last use frees
// the translation. The caller must hold mu, and no engine may be using the entry.
func (t *Table) forget(index uint32) {
	tr := t.translations[index]
	if tr == nil {
		return
	}
	delete(t.translations, index)
	if d := t.pds[PD(t.entries[index].pd.Load())]; d != nil {
		d.places -= min(d.places, tr.places) // another process can write to the entry
	}
	if tr.regions--; tr.regions != 0 {
		return
	}
	for _, one := range tr.runs {
		for i := range one.n {
			t.outer.drop(one.at + i)
		}
	}
	t.runs.giveAll(tr.runs)
}
