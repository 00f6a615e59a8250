package rdma

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/tpt"
)

// RegSharedMR makes another region over the memory of mr: the verb Register Shared Memory
// Region of InfiniBand, which libibverbs does not have. The new region has the memory and
// the page list of mr, and shares their translation, so that it takes only one entry of
// the table. It has its own PD, rights, QP and Start. Its STag is valid from the return
// on. mr may be of any PD of the same adapter. Each of the regions can be closed first.
// The memory returns to the region heap, and the places of a page list become free, at the
// Close of the last one.
//
// Errors: ErrTableFull; ErrQuota; ErrClosed if mr is closed; ErrNoAccess as for RegMR; an
// error if mr is invalid, of another adapter, or made by ReserveMR.
func (pd *PD) RegSharedMR(mr *MR, access Access, o ...MROptions) (*MR, error) {
	if err := pd.adapter.refuse("register shared region"); err != nil {
		return nil, err
	}
	done, err := pd.adapter.use()
	if err != nil {
		return nil, fmt.Errorf("register shared region: %w", err)
	}
	defer done()
	shared, err := pd.regShared(mr, access, o)
	if err != nil {
		return nil, fmt.Errorf("register shared region: %w", err)
	}
	return shared, nil
}

func (pd *PD) regShared(mr *MR, access Access, o []MROptions) (*MR, error) {
	switch {
	case mr.pd.adapter != pd.adapter:
		return nil, errors.New("the region is of another adapter: register its memory with RegMR")
	case mr.lease != nil:
		return nil, errors.New("the region is made by ReserveMR: register its memory with RegMR")
	case mr.foreign != nil:
		return nil, errors.New("the region is memory of another process: register it with RegForeignMR")
	case mr.closed.Load():
		return nil, fmt.Errorf("region %v is %w", mr.stag, ErrClosed)
	}
	l, err := mr.hold()
	if err != nil {
		return nil, err
	}
	var shared *MR
	if access&LocalWrite != 0 && len(l.parts) == 0 {
		err = mr.populate()
	}
	if err == nil {
		shared, err = pd.register(tpt.Region{}, func(r tpt.Region) (STag, error) {
			return pd.adapter.table.Share(mr.stag, mr.pd.domain, r)
		}, access, o)
	}
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	shared.size, shared.pages = mr.size, l
	return shared, nil
}

// hold returns the memory of the region for another region over it.
func (m *MR) hold() (*pageList, error) {
	l := &pageList{list: m.Pages()}
	var parts []*heap.Part
	if m.pages != nil {
		parts = m.pages.parts
	} else if m.part != nil {
		parts = []*heap.Part{m.part}
	}
	for _, p := range parts {
		if err := p.Hold(); err != nil {
			return nil, errors.Join(fmt.Errorf("region %v is %w", m.stag, ErrClosed), l.release())
		}
		l.parts = append(l.parts, p)
	}
	return l, nil
}
