package tpt

import "math"

// Region is memory that Register registers.
type Region struct {
	PD     PD
	QP     uint32 // number of the only queue pair that may use the region; 0 means all of PD
	Memory []byte
	Start  uint64 // tagged offset of the first octet
	Rights Rights // rights of access; Register always adds local read
}

func (r Region) check() error {
	switch {
	case r.Rights&^allRights != 0:
		return fail(ErrRights, "register with rights %#x: unknown ones: leave them out", uint8(r.Rights&^allRights))
	case r.Rights&changing != 0 && r.Rights&LocalWrite == 0:
		return fail(ErrRights, "register with rights %v: what peers may change must be writable here: add local write", r.Rights)
	case len(r.Memory) == 0:
		return fail(ErrMemory, "register no memory: give at least one octet")
	case uint64(len(r.Memory)) >= 1<<spaceShift:
		return fail(ErrMemory, "register %d octets: want less than 2^%d", len(r.Memory), spaceShift)
	case uint64(len(r.Memory))-1 > math.MaxUint64-r.Start:
		return fail(ErrMemory, "register %d octets from offset %#x: they reach past the largest offset: begin lower", len(r.Memory), r.Start)
	}
	return nil
}

// Register makes an entry for the region and returns its STag. Peers and work requests
// may access the memory as the rights allow until Invalidate or Deregister returns. The
// table keeps a reference to the memory until then. Errors: ErrPD, ErrRights,
// ErrMemory, ErrQuota, ErrTableFull, ErrForeign.
func (t *Table) Register(r Region) (STag, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	index, key, err := t.acquire(r.PD)
	if err != nil {
		return 0, err
	}
	e := &t.entries[index]
	old := e.load()
	taken := old.next(key, KindRegion, wordBusy)
	if old.kind() != KindFree || old.busy() || !e.swap(old, taken) {
		t.disown(r.PD)
		return 0, fail(ErrForeign, "register in protection domain %d: another process writes to entry %d: let only one own the table", r.PD, index)
	}
	f := fields{start: r.Start, length: uint64(len(r.Memory)), owner: t.owner, pd: r.PD, qp: r.QP, rights: r.Rights | LocalRead}
	if off, ok := offsetIn(t.heap, r.Memory); ok {
		f.space, f.offset = spaceHeap, off
	} else {
		f.space = spaceExternal
		t.external.keep(index, r.Memory)
	}
	e.fill(f)
	e.publish(taken.next(key, KindRegion, wordValid))
	return NewSTag(index, key), nil
}

// disown gives up an entry that another process writes to. The table does not use the
// entry again.
func (t *Table) disown(pd PD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pds[pd]--
}
