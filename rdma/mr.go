package rdma

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// MR is a region of registered memory, named by an STag. An MR is safe for concurrent
// use. The application itself must order its accesses to the octets.
type MR struct {
	pd    *PD
	first *byte // first octet of the region
	size  int
	start uint64
	part  *heap.Part // part of a region heap that contains the octets; nil: none
	stag  STag

	pages *pageList // memory of a region of RegMRPages or RegSharedMR, instead of first and part; nil for other regions
	lease *lease    // STag and memory of a region of ReserveMR, instead of first, size, part and stag; nil for other regions

	foreign *reach.Region // memory of another process, instead of first and part; nil for other regions

	distant uint64 // handle of the region in the daemon, which then has it instead of the table; 0: there is no daemon

	closed atomic.Bool
}

// MROptions are the less common properties of a region.
type MROptions struct {
	// Start is the tagged offset of the first octet. Work requests and peers use this
	// offset to name the octet. The default 0 is what libibverbs calls zero-based. An
	// offset is then an index of Bytes on both ends, and tells the peer nothing about
	// this program's addresses.
	Start uint64

	// QP, if not nil, is the only QP that may use the region, in its work requests and on
	// behalf of its peer (RFC 5041 §8.2: the STag is associated with one stream). QP must
	// be of the region's PD. If QP is nil, all QPs of the PD may use the region.
	QP *QP

	// PageSize is the size in octets of the pages of RegMRPages and MR.MapPages: a power of
	// two from 4096 to 268435456 (256 MiB). Fewer and larger pages take less of
	// Config.MaxPages. 0 means 4096. Other regions have no page size.
	PageSize int

	// OnDemand leaves pages absent that nobody has used yet (IBV_ACCESS_ON_DEMAND). The
	// first access to such a page waits for the kernel, and RegMR does not see whether the
	// program itself has the rights: a connection whose access the kernel refuses ends with
	// ErrMemoryGone. Only RegMR has on-demand paging.
	OnDemand bool
}

// AllocMR registers size octets of the region heap, at least 1. The octets are zero. The
// STag is valid from the return on, for QPs of the PD and as access says.
// Errors: ErrHeapFull, ErrTableFull, ErrQuota.
func (pd *PD) AllocMR(size int, access Access, o ...MROptions) (*MR, error) {
	mr, err := pd.allocMR(size, access, o)
	if err != nil {
		return nil, fmt.Errorf("allocate region of %d octets: %w", size, err)
	}
	return mr, nil
}

func (pd *PD) allocMR(size int, access Access, o []MROptions) (*MR, error) {
	if size < 1 {
		return nil, errors.New("ask for at least 1")
	}
	done, err := pd.adapter.use()
	if err != nil {
		return nil, err
	}
	defer done()
	mem, p, err := pd.adapter.device.Heap().Alloc(uint64(size))
	if err != nil {
		return nil, err
	}
	return pd.registerPart(mem, p, access, o)
}

// RegMR registers buf, which may be any memory of the program, and keeps buf alive.
// All of its pages become present, unless MROptions.OnDemand is set. If buf is memory of AllocMR, the memory remains valid
// as long as any region over it is open, whatever the region's protection domain and
// adapter. From the call until the region's Close, peers and work requests may change the
// memory as access says, while the program runs.
//
// Errors: ErrTableFull; ErrQuota; ErrNoAccess if the program itself may not write to all
// of buf or, without LocalWrite, may not read all of it.
//
// The program must not unmap or protect the memory before Close, and must not truncate
// the file that it maps. If it does, a connection whose peer or work request accesses
// the memory ends with ErrMemoryGone.
func (pd *PD) RegMR(buf []byte, access Access, o ...MROptions) (*MR, error) {
	done, err := pd.adapter.use()
	if err != nil {
		return nil, fmt.Errorf("register region: %w", err)
	}
	defer done()
	mr, err := pd.regMR(buf, access, o)
	if err != nil {
		return nil, fmt.Errorf("register region: %w", err)
	}
	return mr, nil
}

func (pd *PD) regMR(buf []byte, access Access, o []MROptions) (*MR, error) {
	opts, err := optionsOf(o)
	if err != nil {
		return nil, err
	}
	p, err := heap.Borrow(buf)
	if err == nil && p == nil && len(buf) != 0 && !opts.OnDemand {
		err = heap.Populate(buf, access&LocalWrite != 0)
	}
	if err != nil {
		return nil, err
	}
	opts.OnDemand = false
	return pd.registerPart(buf, p, access, []MROptions{opts})
}

// registerPart registers mem. If p is not nil, mem lies in p. The region takes over the
// caller's use of p. On error, registerPart releases p.
func (pd *PD) registerPart(mem []byte, p *heap.Part, access Access, o []MROptions) (*MR, error) {
	if pd.adapter.through != nil {
		return pd.registerDistant(mem, p, access, o)
	}
	mr, err := pd.register(tpt.Region{Memory: mem}, pd.adapter.table.Register, access, o)
	if err == nil {
		mr.part = p
		return mr, nil
	}
	if p != nil {
		err = errors.Join(err, p.Release())
	}
	return nil, err
}

func optionsOf(o []MROptions) (opts MROptions, err error) {
	if len(o) > 1 {
		return opts, errors.New("options are given twice: give them once")
	}
	if len(o) == 1 {
		opts = o[0]
	}
	return opts, nil
}

// register makes a region of the table by the function enter, with the rights and the
// options. r has the memory, if the region does not share that of another one.
func (pd *PD) register(r tpt.Region, enter func(tpt.Region) (STag, error), access Access, o []MROptions) (*MR, error) {
	opts, err := optionsOf(o)
	if err != nil {
		return nil, err
	}
	if opts.OnDemand {
		return nil, errors.New("on-demand paging: only RegMR has it: leave it out")
	}
	if opts.PageSize != 0 {
		return nil, fmt.Errorf("a page size of %d octets: only RegMRPages and ReserveMR take one: leave it out", opts.PageSize)
	}
	rights, err := rightsOf(access)
	if err != nil {
		return nil, err
	}
	if access&ZeroBased != 0 && opts.Start != 0 {
		return nil, fmt.Errorf("zero-based and beginning at %#x: choose one", opts.Start)
	}
	if err := pd.enter(&pd.mrs); err != nil {
		return nil, err
	}
	qp, err := pd.bind(opts.QP)
	if err != nil {
		pd.leave(&pd.mrs)
		return nil, err
	}
	r.PD, r.QP, r.Start, r.Rights = pd.domain, qp, opts.Start, rights
	r.OneTouch = access&OneTouch != 0
	stag, err := enter(r)
	if err != nil {
		pd.unbind(qp)
		pd.leave(&pd.mrs)
		return nil, err
	}
	mr := &MR{pd: pd, stag: stag, start: opts.Start, size: len(r.Memory)}
	if len(r.Memory) != 0 {
		mr.first = &r.Memory[0]
	}
	for _, mem := range r.Pages {
		mr.size += len(mem)
	}
	remember(pd.adapter, &pd.adapter.objects.mrs, mr)
	return mr, nil
}

// bind returns the number of the QP to which a region of pd is bound, and reserves the
// number until unbind. 0 means that the region is bound to no QP.
func (pd *PD) bind(qp *QP) (number uint32, err error) {
	switch {
	case qp == nil:
		return 0, nil
	case qp.pd != pd:
		return 0, fmt.Errorf("bound to QP %d, which is of another protection domain: choose a QP of this one", qp.Number())
	}
	return qp.Number(), pd.adapter.holdNumber(qp)
}

func (pd *PD) unbind(number uint32) {
	if number != 0 {
		pd.adapter.freeNumber(number)
	}
}

// rightsOf returns access as rights of the table.
func rightsOf(access Access) (tpt.Rights, error) {
	rights, known := work.RightsOf(access)
	if !known {
		return 0, fmt.Errorf("access %v: leave the unknown flags out", access)
	}
	return rights, access.Check()
}

// LKey returns the STag that names the region in work requests.
func (m *MR) LKey() STag { stag, _ := m.extent(); return stag }

// RKey returns the STag that names the region to the peer. RKey returns the same STag as
// LKey. iWARP needs one number for both, because an RDMA Read carries the LKey of its
// sink on the wire, and the Read Response names the sink by that LKey. The access flags
// say what a peer may do with the region.
func (m *MR) RKey() STag { return m.LKey() }

// Addr returns the tagged offset of the first octet.
func (m *MR) Addr() uint64 { return m.start }

// Len returns the region's length in octets.
func (m *MR) Len() int { _, n := m.extent(); return n }

// Uint64 returns the word of 8 octets from octet off on, for operations of sync/atomic.
// Atomic operations of peers on the same word are atomic with respect to them. Uint64
// panics if the octets are not in the region, or if off or their address is no multiple
// of 8. Memory of AllocMR begins at a multiple of 8.
func (m *MR) Uint64(off int) *atomic.Uint64 {
	octets := m.Bytes()[off : off+8]
	w := wordAt(&octets[0])
	if w == nil || (m.start+uint64(off))%8 != 0 {
		panic(fmt.Sprintf("rdma: a word at octet %d of region %v: its offset and its address must be multiples of 8", off, m.LKey()))
	}
	return w
}

// SGE returns the element for n octets of the region, from octet off on. SGE panics if the
// octets are not in the region, or if n is more than an element can have (2^32-1).
func (m *MR) SGE(off, n int) SGE {
	if n > 0 && uint64(n) > maxMessage {
		panic(fmt.Sprintf("rdma: an element of %d octets: it has at most %d", n, maxMessage))
	}
	stag, size := m.extent()
	if off < 0 || n < 0 || off > size-n {
		panic(fmt.Sprintf("rdma: %d octets from octet %d on, of a region of %d", n, off, size))
	}
	return SGE{Addr: m.start + uint64(off), Length: uint32(n), LKey: stag}
}

// Invalidate makes the STag invalid, as a peer's Send with Invalidate does. When
// Invalidate returns, peers and work requests change no octet of the region any more.
// The region must still be closed. A second Invalidate is no error.
func (m *MR) Invalidate() error {
	done, err := m.pd.adapter.use()
	if err != nil {
		return fmt.Errorf("invalidate region: %w", err)
	}
	defer done()
	if m.closed.Load() {
		return fmt.Errorf("invalidate region %v: it is %w", m.LKey(), ErrClosed)
	}
	if err := m.pd.adapter.refuse("invalidate region"); err != nil {
		return err
	}
	if err := m.pd.adapter.table.Invalidate(m.LKey(), m.pd.domain); err != nil {
		return fmt.Errorf("invalidate region: %w", m.inUse(err))
	}
	return nil
}

// inUse returns the error ErrInUse instead of the table's error if windows are bound to
// the region.
func (m *MR) inUse(err error) error {
	if !errors.Is(err, tpt.ErrBound) {
		return err
	}
	info, _ := m.pd.adapter.table.Entry(m.LKey().Index())
	return fmt.Errorf("%w by %d memory windows: unbind or close them first", ErrInUse, info.Windows)
}

// Rereg gives the region other rights (ibv_rereg_mr with IBV_REREG_MR_CHANGE_ACCESS). The
// region then is of one touch only if access has OneTouch. The
// STag, the memory and the QP stay the same. Peers' accesses during the call may be
// refused, and then end their connections. When Rereg returns, the old rights are used no
// more. The errors are ErrInUse while windows are bound to the region, ErrNoAccess as for
// RegMR, and an error for a region that is invalid.
func (m *MR) Rereg(access Access) error {
	done, err := m.pd.adapter.use()
	if err == nil {
		defer done()
		err = m.rereg(access)
	}
	if err != nil {
		return fmt.Errorf("register region %v again: %w", m.LKey(), m.inUse(err))
	}
	return nil
}

func (m *MR) rereg(access Access) error {
	rights, err := rightsOf(access)
	switch {
	case err != nil:
		return err
	case m.distant != 0:
		return ErrThroughDaemon
	case m.closed.Load():
		return fmt.Errorf("it is %w", ErrClosed)
	case access&ZeroBased != 0 && m.start != 0:
		return fmt.Errorf("zero-based, and it begins at %#x: leave the flag out", m.start)
	}
	if m.part == nil && access&LocalWrite != 0 {
		if err := m.populate(); err != nil {
			return err
		}
	}
	return m.pd.adapter.table.Reregister(m.LKey(), m.pd.domain, rights, access&OneTouch != 0)
}

// populate checks that the program itself may write to the memory.
func (m *MR) populate() error {
	if m.foreign != nil {
		return noAccess(m.foreign.Allows(true))
	}
	for _, mem := range m.Pages() {
		if err := heap.Populate(mem, true); err != nil {
			return err
		}
	}
	return nil
}

// Close deregisters the region. Close waits for the engines. When Close returns, peers
// and work requests change no octet of the memory any more. Work requests and messages
// that still name the region fail. Close returns ErrInUse while windows are bound to the
// region. Close may be called twice. Close may be called after
// the adapter's Close, to free the memory of AllocMR.
func (m *MR) Close() error {
	if !m.closed.CompareAndSwap(false, true) {
		return nil
	}
	if m.distant != 0 {
		return m.closeDistant()
	}
	done, err := m.pd.adapter.use()
	if err != nil {
		return m.release() // the adapter's Close has freed everything except the memory
	}
	defer done()
	info, _ := m.pd.adapter.table.Entry(m.LKey().Index())
	if err := m.pd.adapter.table.Deregister(m.LKey(), m.pd.domain); err != nil {
		m.closed.Store(!errors.Is(err, tpt.ErrBound)) // the caller can try again when the windows are gone
		return fmt.Errorf("close region %v: %w", m.LKey(), m.inUse(err))
	}
	forget(m.pd.adapter, &m.pd.adapter.objects.mrs, m)
	m.pd.unbind(info.QP)
	m.pd.leave(&m.pd.mrs)
	return m.release()
}

// release releases the memory if it is part of a region heap. The heap frees the part
// when no other region uses it.
func (m *MR) release() error {
	if m.lease != nil {
		return m.lease.release()
	}
	if m.pages != nil {
		return m.pages.release()
	}
	if m.foreign != nil {
		return m.foreign.Release()
	}
	if m.part == nil {
		return nil
	}
	return m.part.Release()
}
