package tpt

// Region is memory that Register registers.
type Region struct {
	PD     PD
	QP     uint32 // number of the only queue pair that may use the region; 0 means all of PD
	Memory []byte // the octets, if they are contiguous
	Start  uint64 // tagged offset of the first octet
	Rights Rights // rights of access; Register always adds local read

	// Pages are the octets in the order of their tagged offsets, if they are scattered.
	// The octets are pages of PageSize octets. The first octet may lie anywhere in the
	// first page, and the last octet anywhere in the last page: the first element must
	// end at the end of a page, the last element must begin at the beginning of a page,
	// and all other elements must be whole pages. The beginning of a page may have any
	// address. The octets may be in the heap, in external memory, or partly in both.
	Pages    [][]byte
	PageSize uint64 // octets; a power of two, MinPageSize to MaxPageSize

	// OneTouch says that the first message that arrives in the region makes the region
	// invalid. The table only records this: see Touch and Spend.
	OneTouch bool
}

func (r Rights) check() error {
	switch {
	case r&^allRights != 0:
		return fail(ErrRights, "register with rights %#x: unknown ones: leave them out", uint8(r&^allRights))
	case r&changing != 0 && r&LocalWrite == 0:
		return fail(ErrRights, "register with rights %v: what peers may change must be writable here: add local write", r)
	}
	return nil
}

func (r Region) check() error {
	if err := r.Rights.check(); err != nil {
		return err
	}
	return r.checkMemory()
}

// Register makes an entry for the region and returns its STag. Peers and work requests
// may access the memory as the rights allow until Invalidate or Deregister returns. The
// table keeps a reference to the memory until then. Errors: ErrPD, ErrRights,
// ErrMemory, ErrQuota, ErrTableFull, ErrPagesFull, ErrForeign.
func (t *Table) Register(r Region) (STag, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	e, stag, err := t.lock(r.PD, KindRegion)
	if err != nil {
		return 0, err
	}
	f, err := t.translate(stag.Index(), &r)
	if err != nil {
		e.fill(fields{pd: r.PD})
		t.free(stag.Index())
		return 0, err
	}
	f.start, f.owner, f.pd, f.qp, f.rights, f.oneTouch = r.Start, t.owner, r.PD, r.QP, r.Rights|LocalRead, r.OneTouch
	e.fill(f)
	e.publish(e.load().next(stag.Key(), KindRegion, wordValid))
	return stag, nil
}

// Reregister replaces the rights and the one touch of a region of pd. Accesses of
// peers and work requests during the call may be refused with BadSTag. When Reregister
// returns, no engine accesses the memory with the old rights. The STag stays the same.
// Errors: ErrSTag if there is no such valid region, ErrPD, ErrRights, ErrBound.
func (t *Table) Reregister(s STag, pd PD, r Rights, oneTouch bool) error {
	if err := r.check(); err != nil {
		return err
	}
	w, err := t.revoke(s, pd, KindRegion, word.taken)
	if err != nil {
		return err
	}
	e, _ := t.at(s)
	if !w.valid() {
		e.publish(e.load().revoked())
		return fail(ErrSTag, "register STag %v again: the region is invalid: deregister it", s)
	}
	e.permit(r, oneTouch)
	e.publish(e.load().next(s.Key(), KindRegion, wordValid))
	t.epochs.wait(t.epochs.ticket())
	return nil
}
