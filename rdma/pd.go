package rdma

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/tpt"
)

// PD is a protection domain. A QP can use only regions of its own PD, both for the
// application and for the peer. Put peers that do not trust each other into different
// PDs.
type PD struct {
	adapter *Adapter
	domain  tpt.PD
	distant uint64 // handle of the PD in the daemon; 0: there is no daemon

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
	done, err := a.use()
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	defer done()
	domain, err := a.table.NewPD()
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	pd := a.newPD(domain)
	if a.through != nil {
		if pd.distant, err = a.through.makePD(); err != nil {
			forget(a, &a.objects.pds, pd)
			return nil, fmt.Errorf("allocate protection domain: %w", errors.Join(err, a.table.FreePD(domain)))
		}
	}
	return pd, nil
}

// AllocSharedPD joins the protection domain with this name of the adapter's group, and makes
// it if it is new. The PD is as one of AllocPD, and in addition a QP of the PD of one process
// gives its peer access to the PD's regions in all processes, with the rights of the region.
// Regions and windows are shared if their memory is of AllocMR, and if they have neither
// MROptions.QP nor OneTouch. Work requests can use only regions of their own process. All
// processes that join the PD trust each other's peers with its regions. name has 1 to 32
// letters, digits and -_. Errors: ErrNoMemoryGroup; ErrInUse while the adapter has the PD open; ErrClosed.
func (a *Adapter) AllocSharedPD(name string) (*PD, error) {
	done, err := a.use()
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain %s: %w", name, err)
	}
	defer done()
	pd, err := a.device.JoinPD(name)
	if errors.Is(err, tpt.ErrPD) {
		err = fmt.Errorf("%w: %w", ErrInUse, err)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain %s: %w", name, err)
	}
	return a.newPD(pd), nil
}

func (a *Adapter) newPD(domain tpt.PD) *PD {
	pd := &PD{adapter: a, domain: domain, ofQPs: map[*MW]struct{}{}}
	remember(a, &a.objects.pds, pd)
	return pd
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
	done, err := pd.adapter.use()
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
	if pd.distant != 0 {
		if err := pd.adapter.through.destroy(proto.KindPD, pd.distant); err != nil {
			return fmt.Errorf("close protection domain: %w", err)
		}
	}
	if err := pd.adapter.table.FreePD(pd.domain); err != nil {
		return fmt.Errorf("close protection domain: %w", err)
	}
	pd.closed = true
	forget(pd.adapter, &pd.adapter.objects.pds, pd)
	return nil
}
