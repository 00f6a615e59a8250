package rdma

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/tpt"
)

// lease is the part of a region of ReserveMR that Map changes.
type lease struct {
	mu   sync.Mutex // no engine takes mu
	stag STag
	mem  []byte
	part *heap.Part // part of a region heap that contains mem; nil: none
}

// ReserveMR reserves an entry of the table for regions that work requests register
// (ib_alloc_mr of the Linux kernel). The entry takes one of MaxRegionsPerPD. It has no
// memory and permits no access until a registration (WRRegMR):
//
//	stag, err := mr.Map(buf)
//	qp.PostSend(
//		rdma.SendWR{Op: rdma.WRRegMR, SGL: []rdma.SGE{mr.SGE(0, len(buf))}, Access: rdma.RemoteRead},
//		rdma.SendWR{Op: rdma.WRSend, Inline: tellThePeer(stag)},
//	)
//
// QP.PostRegMR and QP.PostRegSend do both. The region becomes invalid by
// WRLocalInvalidate, by MR.Invalidate, or by a peer's Send with Invalidate. Then Map gives
// it memory again. If MROptions.QP is set, only that QP can register and use the region,
// and the peer of that QP may invalidate it. MROptions.Start holds for every registration.
// Errors: ErrTableFull, ErrQuota.
func (pd *PD) ReserveMR(o ...MROptions) (*MR, error) {
	mr, err := pd.reserve(o)
	if err != nil {
		return nil, fmt.Errorf("reserve region: %w", err)
	}
	return mr, nil
}

func (pd *PD) reserve(o []MROptions) (*MR, error) {
	opts, err := optionsOf(o)
	if err != nil {
		return nil, err
	}
	done, err := pd.adapter.device.Use()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := pd.enter(&pd.mrs); err != nil {
		return nil, err
	}
	qp, err := pd.bind(opts.QP)
	if err != nil {
		pd.leave(&pd.mrs)
		return nil, err
	}
	stag, err := pd.adapter.table.Reserve(pd.domain, qp)
	if err != nil {
		pd.unbind(qp)
		pd.leave(&pd.mrs)
		return nil, err
	}
	return &MR{pd: pd, start: opts.Start, lease: &lease{stag: stag}}, nil
}

// Map gives memory to a region of ReserveMR for its next registration, and returns the
// STag of that registration (ib_map_mr_sg and ib_update_fast_reg_key). A registration may
// cover the first octets only. The index of the STag stays the same, and the key is random and
// differs from the last one. So a posted registration that names the old STag fails. Map
// waits until no engine uses the memory from before, which the caller may then reuse.
//
// The memory is as for RegMR: any memory of the program, which must be writable. Map keeps
// it alive until the next Map or Close. Memory of AllocMR needs no system call. Errors:
// ErrInUse while the region is registered, ErrNoAccess, ErrClosed.
func (m *MR) Map(buf []byte) (STag, error) {
	stag, err := m.mapMemory(buf)
	if err != nil {
		return 0, fmt.Errorf("map memory to region: %w", err)
	}
	return stag, nil
}

func (m *MR) mapMemory(buf []byte) (STag, error) {
	if m.lease == nil {
		return 0, errors.New("the region has its own memory: use one of ReserveMR")
	}
	done, err := m.pd.adapter.device.Use()
	if err != nil {
		return 0, err
	}
	defer done()
	p, err := heap.Borrow(buf)
	if err == nil && p == nil && len(buf) != 0 {
		err = heap.Populate(buf, true)
	}
	if err != nil {
		return 0, err
	}
	stag, old, err := m.lease.replace(m, buf, p)
	if old != nil {
		err = errors.Join(err, old.Release())
	}
	return stag, err
}

// replace maps buf, which lies in p if p is not nil. It returns the part that the lease
// does not use any more: on error, that is p.
func (l *lease) replace(m *MR, buf []byte, p *heap.Part) (STag, *heap.Part, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.closed.Load() {
		return 0, p, fmt.Errorf("it is %w", ErrClosed)
	}
	stag, err := m.pd.adapter.table.Map(l.stag, m.pd.domain, buf)
	if errors.Is(err, tpt.ErrBound) {
		err = fmt.Errorf("%w: it is registered: invalidate it first", ErrInUse)
	}
	if err != nil {
		return 0, p, err
	}
	old := l.part
	l.stag, l.mem, l.part = stag, buf, p
	return stag, old, nil
}

// now returns the present STag and memory of the region.
func (m *MR) now() (STag, []byte) {
	switch {
	case m.pages != nil:
		return m.stag, m.pages.bytes()
	case m.lease == nil:
		return m.stag, octetsAt(m.first, m.size)
	}
	m.lease.mu.Lock()
	defer m.lease.mu.Unlock()
	return m.lease.stag, m.lease.mem
}

// release releases the memory when the region is closed.
func (l *lease) release() error {
	l.mu.Lock()
	part := l.part
	l.mem, l.part = nil, nil
	l.mu.Unlock()
	if part == nil {
		return nil
	}
	return part.Release()
}

// RegWR describes a registration through the send queue (struct ib_reg_wr).
type RegWR struct {
	ID     uint64
	Flags  SendFlags // Fence, Signaled
	MR     *MR       // region of ReserveMR that is not registered
	Memory []byte    // memory as for MR.Map; at most 2^32-1 octets
	Access Access
}

// PostRegMR maps memory to a region, posts the registration, and returns the STag at once.
// Work requests that are posted behind it on the same QP may use the STag. The
// registration takes effect when its turn comes. The QP needs QPConfig.RegMR. The errors
// are those of MR.Map and of PostSend. WRRegMR says how the request can fail later.
func (qp *QP) PostRegMR(r RegWR) (STag, error) { return qp.postReg(&r, nil) }

// PostRegSend posts a registration and a second work request behind it, which send makes
// from the region's STag. The second request usually is a Send that tells the peer the
// STag. PostRegSend posts both requests or none. If the registration fails, the second
// request is not performed.
//
// If the QP's peer answers by a Send with Invalidate that names the STag, the region is
// invalid when the receive completes (Completion.Invalidated), and nothing changes the
// memory any more. The region must be bound to the QP (MROptions.QP) and have a remote
// right, or have RemoteInvalidate.
func (qp *QP) PostRegSend(r RegWR, send func(STag) SendWR) (STag, error) {
	return qp.postReg(&r, send)
}

func (qp *QP) postReg(r *RegWR, send func(STag) SendWR) (STag, error) {
	switch {
	case r.MR == nil || r.MR.pd != qp.pd:
		return 0, unposted(qp, "post", 0, 1, bad("want a region of the QP's protection domain"))
	case !qp.cfg.RegMR:
		return 0, unposted(qp, "post", 0, 1, bad("the QP takes no registrations: create it with RegMR"))
	case uint64(len(r.Memory)) > maxMessage:
		return 0, unposted(qp, "post", 0, 1, bad("%d octets: a work request registers at most %d", len(r.Memory), maxMessage))
	}
	stag, err := r.MR.Map(r.Memory)
	if err != nil {
		return 0, unposted(qp, "post", 0, 1, err)
	}
	wrs := []SendWR{{
		ID: r.ID, Op: WRRegMR, Flags: r.Flags, Access: r.Access,
		SGL: []SGE{{Addr: r.MR.start, Length: uint32(len(r.Memory)), LKey: stag}},
	}}
	if send != nil {
		wrs = append(wrs, send(stag))
	}
	if err := qp.postAll(wrs); err != nil {
		return 0, err
	}
	return stag, nil
}

// postAll is PostSend that posts all requests or none.
func (qp *QP) postAll(wrs []SendWR) error {
	qp.sending.Lock()
	if !qp.started.Load() && !qp.machine.Dead() {
		qp.sending.Unlock()
		return unposted(qp, "post", 0, len(wrs), ErrNotConnected)
	}
	for i := range wrs {
		if err := qp.checkSend(&wrs[i]); err != nil {
			qp.sending.Unlock()
			return unposted(qp, "post", i, len(wrs), err)
		}
	}
	if room := qp.machine.SendRoom(); room < len(wrs) {
		qp.sending.Unlock()
		return unposted(qp, "post", room, len(wrs), ErrQueueFull)
	}
	qp.machine.PostSend(wrs...)
	qp.sending.Unlock()
	qp.posted(true)
	return nil
}
