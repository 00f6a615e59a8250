package tpt

import "math"

// Region is memory that Register registers.
type Region struct {
	PD     PD
	QP     uint32 // number of the only queue pair that may use the region; 0 means all of PD
	Memory []byte
	Start  uint64 // tagged offset of the first octet
	Rights Rights // rights of access; Register always adds local read

	// OneTouch says that the first message of a peer that uses the region makes it
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
	return checkMemory(r.Memory, r.Start)
}

func checkMemory(mem []byte, start uint64) error {
	switch {
	case len(mem) == 0:
		return fail(ErrMemory, "register no memory: give at least one octet")
	case uint64(len(mem)) >= 1<<spaceShift:
		return fail(ErrMemory, "register %d octets: want less than 2^%d", len(mem), spaceShift)
	case uint64(len(mem))-1 > math.MaxUint64-start:
		return fail(ErrMemory, "register %d octets from offset %#x: they reach past the largest offset: begin lower", len(mem), start)
	}
	return nil
}

// locate sets space and offset of f to the place of mem, for the entry at the index,
// which the caller has locked. If mem is outside of the region heap, the table keeps a
// reference to it.
func (t *Table) locate(index uint32, mem []byte, f *fields) {
	if off, ok := offsetIn(t.heap, mem); ok {
		f.space, f.offset = spaceHeap, off
		t.external.drop(index)
		return
	}
	f.space = spaceExternal
	t.external.keep(index, mem)
}

// Register makes an entry for the region and returns its STag. Peers and work requests
// may access the memory as the rights allow until Invalidate or Deregister returns. The
// table keeps a reference to the memory until then. Errors: ErrPD, ErrRights,
// ErrMemory, ErrQuota, ErrTableFull, ErrForeign.
func (t *Table) Register(r Region) (STag, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	e, stag, err := t.lock(r.PD, KindRegion)
	if err != nil {
		return 0, err
	}
	f := fields{start: r.Start, length: uint64(len(r.Memory)), owner: t.owner, pd: r.PD, qp: r.QP, rights: r.Rights | LocalRead, oneTouch: r.OneTouch}
	t.locate(stag.Index(), r.Memory, &f)
	e.fill(f)
	e.publish(e.load().next(stag.Key(), KindRegion, wordValid))
	return stag, nil
}

// Reregister replaces the rights of a region of pd. It implements the verb. Accesses of
// peers and work requests during the call may be refused with BadSTag. When Reregister
// returns, no engine accesses the memory with the old rights. The STag stays the same.
// Errors: ErrSTag if there is no such valid region, ErrPD, ErrRights, ErrBound.
func (t *Table) Reregister(s STag, pd PD, r Rights) error {
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
	e.access.Store(e.access.Load()&^accessRights | uint32(r|LocalRead))
	e.publish(e.load().next(s.Key(), KindRegion, wordValid))
	t.epochs.wait(t.epochs.ticket())
	return nil
}
