package rdma

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/tpt"
)

// lease is the part of a region of ReserveMR that Map and MapPages change.
type lease struct {
	pageSize int // octets of a page of MapPages

	mu   sync.Mutex // guards the fields below; no engine takes it
	stag STag
	mapping
}

// mapping is the memory of a lease. The zero value is no memory.
type mapping struct {
	size  int        // octets
	mem   []byte     // memory of Map
	part  *heap.Part // part of a region heap that contains mem; nil: none
	pages *pageList  // memory of MapPages, instead of mem and part; nil: none
}

// release gives the parts of region heaps back.
func (m *mapping) release() error {
	switch {
	case m.pages != nil:
		return m.pages.release()
	case m.part != nil:
		return m.part.Release()
	}
	return nil
}

// Map gives memory to a region of ReserveMR for its next registration, and returns the
// STag of that registration (ib_map_mr_sg and ib_update_fast_reg_key). A registration may
// cover the first octets only. The index of the STag stays the same, and the key is random
// and differs from the last one, so that a posted registration that names the old STag
// fails.
// Map waits until no engine uses the memory from before, which the caller may then reuse.
//
// The memory is as for RegMR: any memory of the program, which must be writable. Map keeps
// it alive until the next Map, MapPages or Close. Memory of AllocMR needs no system call.
// Errors: ErrInUse while the region is registered, ErrNoAccess, ErrClosed.
func (m *MR) Map(buf []byte) (STag, error) {
	stag, err := m.remap(func() (mapping, error) {
		p, err := heap.Borrow(buf)
		if err == nil && p == nil && len(buf) != 0 {
			err = heap.Populate(buf, true)
		}
		return mapping{size: len(buf), mem: buf, part: p}, err
	})
	if err != nil {
		return 0, fmt.Errorf("map memory to region: %w", err)
	}
	return stag, nil
}

// MapPages does what Map does, with scattered memory: the elements are those of
// RegMRPages, and the page size is the MROptions.PageSize of ReserveMR (ib_map_mr_sg).
// Besides the errors of Map, the error may be ErrPagesFull, or ErrQuota if the protection
// domain has its share of the places for pages. After these two errors the region has no
// memory until the next Map or MapPages.
func (m *MR) MapPages(pages [][]byte) (STag, error) {
	stag, err := m.remap(func() (mapping, error) {
		l := newPageList(pages)
		return mapping{size: l.size(), pages: l}, l.borrow(LocalWrite)
	})
	if err != nil {
		return 0, fmt.Errorf("map page list to region: %w", err)
	}
	return stag, nil
}

// remap gives the region the memory that the function borrow returns.
func (m *MR) remap(borrow func() (mapping, error)) (STag, error) {
	if m.lease == nil {
		return 0, errors.New("the region has its own memory: use one of ReserveMR")
	}
	done, err := m.pd.adapter.use()
	if err != nil {
		return 0, err
	}
	defer done()
	next, err := borrow()
	if err != nil {
		return 0, errors.Join(err, next.release())
	}
	return m.lease.replace(m, next)
}

// replace maps next, and releases the memory that the lease does not use any more. On an
// error that is next. If the table has already unmapped the old memory, it is both.
func (l *lease) replace(m *MR, next mapping) (STag, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.closed.Load() {
		return 0, errors.Join(fmt.Errorf("it is %w", ErrClosed), next.release())
	}
	stag, err := l.enter(m.pd, next)
	if errors.Is(err, tpt.ErrBound) {
		err = fmt.Errorf("%w: it is registered: invalidate it first", ErrInUse)
	}
	if err != nil {
		err = errors.Join(err, next.release())
		next = mapping{}
	}
	if stag == 0 {
		return 0, err
	}
	old := l.mapping
	l.stag, l.mapping = stag, next
	return stag, errors.Join(err, old.release())
}

// enter maps memory in the table. On an error, the STag is 0 if the old memory is still
// mapped.
func (l *lease) enter(pd *PD, next mapping) (STag, error) {
	if next.pages != nil {
		return pd.adapter.table.MapPages(l.stag, pd.domain, next.pages.list, uint64(l.pageSize))
	}
	return pd.adapter.table.Map(l.stag, pd.domain, next.mem)
}

// release releases the memory when the region is closed.
func (l *lease) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.mapping
	l.mapping = mapping{}
	return old.release()
}

// extent returns the present STag and the number of octets of the region.
func (m *MR) extent() (STag, int) {
	if m.lease == nil {
		return m.stag, m.size
	}
	m.lease.mu.Lock()
	defer m.lease.mu.Unlock()
	return m.lease.stag, m.lease.mapping.size
}

// memory returns the present memory of the region: a page list, or one slice.
func (m *MR) memory() (pages *pageList, mem []byte) {
	switch {
	case m.lease != nil:
		m.lease.mu.Lock()
		defer m.lease.mu.Unlock()
		return m.lease.mapping.pages, m.lease.mapping.mem
	case m.pages != nil:
		return m.pages, nil
	case m.foreign != nil:
		return nil, nil
	}
	return nil, octetsAt(m.first, m.size)
}

// Bytes returns the memory of the region. Memory of AllocMR is valid until the Close of
// the region and of all regions that RegMR made of the same memory, even if the adapter
// was closed before. The program must not access the memory after that. Bytes returns nil
// for scattered memory: see Pages. Bytes returns nil for memory of another process.
func (m *MR) Bytes() []byte {
	l, mem := m.memory()
	if l != nil && len(l.list) == 1 {
		return l.list[0]
	}
	return mem
}

// Pages returns the memory of the region in pieces, in the order of the tagged offsets:
// the elements of RegMRPages or MapPages, or the one slice of another region. The rules of
// Bytes apply.
func (m *MR) Pages() [][]byte {
	l, mem := m.memory()
	if l != nil {
		return slices.Clone(l.list)
	}
	if m.foreign != nil {
		return nil
	}
	return [][]byte{mem}
}
