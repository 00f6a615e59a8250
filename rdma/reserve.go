package rdma

import (
	"cmp"
	"fmt"
)

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
// and the peer of that QP may invalidate it. MROptions.Start holds for every registration,
// and MROptions.PageSize for every MapPages. Errors: ErrTableFull, ErrQuota.
func (pd *PD) ReserveMR(o ...MROptions) (*MR, error) {
	if err := pd.adapter.refuse("reserve region"); err != nil {
		return nil, err
	}
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
	done, err := pd.adapter.use()
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
	mr := &MR{pd: pd, start: opts.Start, lease: &lease{stag: stag, pageSize: cmp.Or(opts.PageSize, defaultPageSize)}}
	remember(pd.adapter, &pd.adapter.objects.mrs, mr)
	return mr, nil
}

// RegWR describes a registration through the send queue (struct ib_reg_wr).
type RegWR struct {
	ID     uint64
	Flags  SendFlags // Fence, Signaled
	MR     *MR       // region of ReserveMR that is not registered
	Memory []byte    // memory as for MR.Map; at most 2^32-1 octets
	Pages  [][]byte  // memory as for MR.MapPages, instead of Memory; at most 2^32-1 octets
	Access Access
}

// size returns the number of octets to register.
func (r *RegWR) size() (n int) {
	if r.Pages != nil {
		return newPageList(r.Pages).size()
	}
	return len(r.Memory)
}

func (r *RegWR) mapMemory() (STag, error) {
	if r.Pages != nil {
		return r.MR.MapPages(r.Pages)
	}
	return r.MR.Map(r.Memory)
}

// PostRegMR maps memory to a region, posts the registration, and returns the STag at once.
// Work requests that are posted behind it on the same QP may use the STag. The
// registration takes effect when its turn comes. The QP needs QPConfig.RegMR. The errors
// are those of MR.Map or MR.MapPages, and of PostSend. WRRegMR says how the request can fail later.
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
	case r.Memory != nil && r.Pages != nil:
		return 0, unposted(qp, "post", 0, 1, bad("both Memory and Pages: give one of them"))
	case uint64(r.size()) > maxMessage:
		return 0, unposted(qp, "post", 0, 1, bad("%d octets: a work request registers at most %d", r.size(), maxMessage))
	}
	stag, err := r.mapMemory()
	if err != nil {
		return 0, unposted(qp, "post", 0, 1, err)
	}
	wrs := []SendWR{{
		ID: r.ID, Op: WRRegMR, Flags: r.Flags, Access: r.Access,
		SGL: []SGE{{Addr: r.MR.start, Length: uint32(r.size()), LKey: stag}},
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
	if err := qp.postable(); err != nil {
		qp.sending.Unlock()
		return unposted(qp, "post", 0, len(wrs), err)
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
