package rdma

import (
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/tpt"
)

// PD is a protection domain. A QP can use only regions of its own PD, both for the
// application and for the peer. Put peers that do not trust each other into different
// PDs.
type PD struct {
	adapter *Adapter
	domain  tpt.PD

	mu     sync.Mutex // guards the fields below; no engine takes it
	mrs    int
	mws    int
	qps    int
	srqs   int
	ofQPs  map[*MW]struct{} // windows of type 2
	closed bool
}

// AllocPD makes a protection domain. It needs no right, and takes effect at once. The error
// is ErrClosed.
func (a *Adapter) AllocPD() (*PD, error) {
	done, err := a.device.Use()
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	defer done()
	pd, err := a.table.NewPD()
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	return &PD{adapter: a, domain: pd, ofQPs: map[*MW]struct{}{}}, nil
}

// Number returns the PD's number in `stag show`. No two PDs of the adapter have the same
// number.
func (pd *PD) Number() uint32 { return uint32(pd.domain) }

// enter adds one to a count of regions, windows, QPs or SRQs. leave subtracts one from
// the count.
func (pd *PD) enter(count *int) error {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		return fmt.Errorf("the protection domain is %w", ErrClosed)
	}
	*count++
	return nil
}

func (pd *PD) leave(count *int) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	*count--
}

// Close frees the protection domain. Close returns ErrInUse while the PD has regions,
// windows, QPs or SRQs. Close may be called twice, and after the adapter's Close.
func (pd *PD) Close() error {
	done, err := pd.adapter.device.Use()
	if err != nil {
		return nil // the adapter's Close has freed it
	}
	defer done()
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		return nil
	}
	if pd.mrs != 0 || pd.qps != 0 || pd.srqs != 0 {
		return fmt.Errorf("close protection domain: %w by %d regions, %d QPs and %d SRQs: close them first", ErrInUse, pd.mrs, pd.qps, pd.srqs)
	}
	if pd.mws != 0 {
		return fmt.Errorf("close protection domain: %w by %d memory windows: close them first", ErrInUse, pd.mws)
	}
	if err := pd.adapter.table.FreePD(pd.domain); err != nil {
		return fmt.Errorf("close protection domain: %w", err)
	}
	pd.closed = true
	return nil
}
