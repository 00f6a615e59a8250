package rdma

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/tpt"
)

// pageList is the memory of a region that is not one slice of its own: that of a page
// list.
type pageList struct {
	list  [][]byte
	parts []*heap.Part // parts of region heaps that contain elements of the list
}

// newPageList returns a list of the elements. The list is not nil if there are none.
func newPageList(pages [][]byte) *pageList { return &pageList{list: append([][]byte{}, pages...)} }

// size returns the number of octets.
func (l *pageList) size() (n int) {
	for _, mem := range l.list {
		n += len(mem)
	}
	return n
}

// defaultPageSize is the page size of a page list in octets unless MROptions.PageSize is
// set.
const defaultPageSize = 4096

// RegMRPages registers scattered memory as one region (in the Linux kernel
// ib_map_mr_sg). The region has the octets of the elements in their order. An access of a
// peer or a work request may cross pages.
//
// The memory consists of pages of MROptions.PageSize octets. The region may begin anywhere
// in the first page and end anywhere in the last page: the first element must end at the
// end of a page, the last element must begin at the beginning of a page, and each other
// element must be one page or several whole pages. The length of the first element gives
// the offset in the first page. The beginning of a page may have any address. An element
// is memory of AllocMR or any other memory of the program. One list may have both, and an
// element more than once.
//
// The STag is valid from the return on. In all other respects RegMRPages does what RegMR
// does: it keeps the elements alive, makes their pages present, and gives the memory back
// at the Close of the region. Bytes returns nil if the list has several elements.
//
// Errors: those of RegMR; ErrPagesFull; ErrQuota for the pages of the PD; an error for elements that are no whole pages.
func (pd *PD) RegMRPages(pages [][]byte, access Access, o ...MROptions) (*MR, error) {
	if err := pd.adapter.refuse("register region of pages"); err != nil {
		return nil, err
	}
	mr, err := pd.regPages(pages, access, o)
	if err != nil {
		return nil, fmt.Errorf("register page list: %w", err)
	}
	return mr, nil
}

func (pd *PD) regPages(pages [][]byte, access Access, o []MROptions) (*MR, error) {
	opts, err := optionsOf(o)
	if err != nil {
		return nil, err
	}
	done, err := pd.adapter.use()
	if err != nil {
		return nil, err
	}
	defer done()
	l := newPageList(pages)
	mr, err := (*MR)(nil), l.borrow(access)
	if err == nil {
		size := cmp.Or(opts.PageSize, defaultPageSize)
		opts.PageSize = 0
		mr, err = pd.register(tpt.Region{Pages: l.list, PageSize: uint64(size)}, pd.adapter.table.Register, access, []MROptions{opts})
	}
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	mr.pages = l
	return mr, nil
}

// borrow counts the region in all parts of heaps, and populates all other memory.
func (l *pageList) borrow(access Access) error {
	for _, mem := range l.list {
		p, err := heap.Borrow(mem)
		switch {
		case err != nil:
			return err
		case p != nil:
			l.parts = append(l.parts, p)
		case len(mem) != 0:
			if err := heap.Populate(mem, access&LocalWrite != 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// release gives the parts back.
func (l *pageList) release() (err error) {
	for _, p := range l.parts {
		err = errors.Join(err, p.Release())
	}
	l.parts = nil
	return err
}
