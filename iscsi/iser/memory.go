package iser

import (
	"cmp"
	"errors"
	"slices"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/rdma"
)

// Memory is where the data of a target's commands is: registered memory, of one protection
// domain, that no peer has access to.
type Memory struct {
	pd      *rdma.PD
	regions []*rdma.MR // by address
}

// NewMemory registers the parts. They take memory only where they are used. The caller must
// close the Memory, when no connection is left.
func NewMemory(a *rdma.Adapter, parts ...[]byte) (m *Memory, err error) {
	m = &Memory{}
	if m.pd, err = a.AllocPD(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		mr, err := m.pd.RegMR(part, rdma.LocalWrite, rdma.MROptions{OnDemand: true})
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.regions = append(m.regions, mr)
	}
	slices.SortFunc(m.regions, func(x, y *rdma.MR) int { return cmp.Compare(heap.Address(x.Bytes()), heap.Address(y.Bytes())) })
	return m, nil
}

// Close ends the registration.
func (m *Memory) Close() error {
	var errs []error
	for _, mr := range m.regions {
		errs = append(errs, mr.Close())
	}
	m.regions = nil
	return errors.Join(append(errs, m.pd.Close())...)
}

// find returns the element for octets of the Memory. ok is false if they are somewhere else.
func (m *Memory) find(b []byte) (e rdma.SGE, ok bool) {
	at := heap.Address(b)
	i, exact := slices.BinarySearchFunc(m.regions, at, func(mr *rdma.MR, at uintptr) int {
		return cmp.Compare(heap.Address(mr.Bytes()), at)
	})
	if !exact {
		i--
	}
	if i < 0 {
		return e, false
	}
	mr := m.regions[i]
	off := int(at - heap.Address(mr.Bytes()))
	if off+len(b) > mr.Len() {
		return e, false
	}
	return mr.SGE(off, len(b)), true
}
