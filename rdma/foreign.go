package rdma

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/tpt"
)

// These are the memory of another process, and the descriptors that the process passes for
// it: see OpenForeignSpace and PD.RegForeignMR.
type (
	ForeignSpace  = reach.Space
	ForeignClient = reach.Client
)

// OpenForeignSpace makes the memory of another process usable for regions. The process
// itself has opened its /proc/self/mem and its /proc/self/maps, and has passed them over a
// Unix socket. It needs no right for that. The space is bound to the memory of that time: it
// reaches nothing after an exec or the end of the process. OpenForeignSpace takes the
// descriptors over, also on an error. The ForeignSpace's Close closes them when no region
// uses them any more.
func OpenForeignSpace(c ForeignClient) (*ForeignSpace, error) { return reach.Open(c) }

// RegForeignMR registers the n octets at address addr of the process of s. The tagged offset
// of the first octet is addr, unless MROptions.Start is set or access has ZeroBased.
// Everything else is as with RegMR, with these differences:
//
//   - The memory is what the process has mapped at the time of an access, as with on-demand
//     paging. If it has mapped nothing there, or has ended, the connection ends with
//     ErrMemoryGone. RegForeignMR makes no page present.
//   - Memory that is a shared file already (memfd, shm, hugetlbfs) is mapped here, too, if
//     the process passes a pidfd and this process has CAP_CHECKPOINT_RESTORE. Then an access
//     costs no system call. MR.Unmapped says why a region is not mapped.
//   - Atomic operations of peers on memory that is not mapped are atomic with respect to
//     those of all QPs of this adapter (IBV_ATOMIC_HCA), and not with respect to the
//     processor of the other process.
//   - Bytes and Pages return nil, and the adapter cannot be handed over (HandOver).
//
// Errors: ErrTableFull; ErrQuota; ErrNoAccess if the other process itself may not write to
// all of the octets or, without LocalWrite, may not read all of them.
func (pd *PD) RegForeignMR(s *ForeignSpace, addr, n uint64, access Access, o ...MROptions) (*MR, error) {
	if err := pd.adapter.refuse("register foreign region"); err != nil {
		return nil, err
	}
	done, err := pd.adapter.use()
	if err != nil {
		return nil, fmt.Errorf("register memory of another process: %w", err)
	}
	defer done()
	mr, err := pd.regForeign(s, addr, n, access, o)
	if err != nil {
		return nil, fmt.Errorf("register memory of another process: %w", err)
	}
	return mr, nil
}

func (pd *PD) regForeign(s *ForeignSpace, addr, n uint64, access Access, o []MROptions) (*MR, error) {
	opts, err := optionsOf(o)
	if err != nil {
		return nil, err
	}
	if opts.Start == 0 && access&ZeroBased == 0 {
		opts.Start = addr
	}
	r, err := reach.NewRegion(s, addr, n, access&LocalWrite != 0)
	if err != nil {
		return nil, noAccess(err)
	}
	mr, err := pd.register(tpt.Region{Memory: r.Octets()}, pd.adapter.table.Register, access, []MROptions{opts})
	if err != nil {
		return nil, errors.Join(err, r.Release())
	}
	mr.foreign = r
	return mr, nil
}

// noAccess makes an error of the other process's rights one of this package, too.
func noAccess(err error) error {
	if errors.Is(err, reach.ErrNoAccess) {
		return fmt.Errorf("%w: %w", ErrNoAccess, err)
	}
	return err
}

// Unmapped returns the reason why each octet of a region of RegForeignMR is copied by a
// system call, or nil if the memory is mapped. It returns nil for all other regions.
func (m *MR) Unmapped() error {
	if m.foreign == nil {
		return nil
	}
	return m.foreign.Unmapped()
}
