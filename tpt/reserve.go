package tpt

import "math"

// Reserve makes an entry for regions that work requests register (StartRegister). The
// entry has no memory yet and permits no access. If qp is not 0, only that queue pair can
// register and use the regions. Map gives the entry memory, and Deregister frees it.
// Errors: ErrPD, ErrQuota, ErrTableFull, ErrForeign.
func (t *Table) Reserve(pd PD, qp uint32) (STag, error) {
	e, stag, err := t.lock(pd, KindRegion)
	if err != nil {
		return 0, err
	}
	e.fill(fields{owner: t.owner, pd: pd, qp: qp})
	e.publish(e.load().next(stag.Key(), KindRegion, 0))
	return stag, nil
}

// Map gives memory to a region of pd that is not valid, and returns the STag of the
// region's next registration. The index stays the same. The key is random and differs
// from the old key, so that a registration that names the old STag is refused. The table
// keeps a reference to the memory until the next Map or Deregister. Map waits for
// engines that may still use the memory from before. Errors: ErrSTag, ErrPD, ErrMemory,
// ErrBound if the region is valid or windows are bound to it.
func (t *Table) Map(s STag, pd PD, mem []byte) (STag, error) {
	return t.mapTo(s, pd, &Region{PD: pd, Memory: mem})
}

// MapPages does what Map does, with a page list as in Region. In addition the error may
// be ErrPagesFull or ErrQuota. The region then has no memory, and the returned STag.
func (t *Table) MapPages(s STag, pd PD, pages [][]byte, size uint64) (STag, error) {
	return t.mapTo(s, pd, &Region{PD: pd, Pages: pages, PageSize: size})
}

func (t *Table) mapTo(s STag, pd PD, r *Region) (STag, error) {
	if err := r.checkMemory(); err != nil {
		return 0, err
	}
	e, err := t.takeInvalid(s, pd)
	if err != nil {
		return 0, err
	}
	t.epochs.wait(t.epochs.ticket())
	t.unmap(s.Index())
	f, err := t.translate(s.Index(), r)
	f.owner, f.pd, f.qp = t.owner, pd, e.qp.Load()
	e.fill(f)
	next := t.NextSTag(s)
	e.publish(e.load().next(next.Key(), KindRegion, 0))
	return next, err
}

// unmap ends the translation of a locked entry that no engine uses.
func (t *Table) unmap(index uint32) {
	t.external.drop(index)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(index)
}

// takeInvalid locks a region of pd that is not valid.
func (t *Table) takeInvalid(s STag, pd PD) (*entry, error) {
	e, ok := t.at(s)
	for ok {
		w := e.load()
		if !w.known(s) || w.kind() != KindRegion {
			break
		}
		has := PD(e.pd.Load())
		switch {
		case !e.unchanged(w):
			continue
		case has != pd:
			return nil, fail(ErrPD, "map memory to STag %v in protection domain %d: it is in another one", s, pd)
		case w.valid():
			return nil, fail(ErrBound, "map memory to STag %v: it is registered: invalidate it first", s)
		case w.windows() != 0:
			return nil, fail(ErrBound, "map memory to STag %v: %d windows are bound to it: unbind them first", s, w.windows())
		}
		if e.swap(w, w.taken()) {
			return e, nil
		}
	}
	return nil, fail(ErrSTag, "map memory to STag %v: there is no region of that STag", s)
}

// Registration describes a region that StartRegister registers.
type Registration struct {
	STag   STag   // the STag that Map has returned
	PD     PD     // the protection domain of the queue pair
	QP     uint32 // the number of the queue pair
	Start  uint64 // tagged offset of the first octet
	Len    uint64 // octets, from the first octet of the mapped memory on
	Rights Rights // StartRegister adds local read

	OneTouch bool // as in Region
}

// StartRegister registers the memory of Map, for a work request. Peers and work requests
// may then access the octets as the rights allow. A region that has become invalid needs
// another Map before its next registration. StartRegister never waits, locks or
// allocates. If StartRegister refuses, it does not change the entry. The faults are, in
// the order of the checks:
//
//   - BadSTag: there is no region of that index, or the key is another.
//   - WrongPD: the entry is of another protection domain or queue pair.
//   - Bound: the region is registered already, or windows are bound to it.
//   - NoRight: the rights are unknown, or peers could change what is not writable here.
//   - NoSpace: the entry has no mapped memory, or fewer octets than Len.
//   - Wrap: the octets reach past offset 2^64-1.
func (t *Table) StartRegister(r *Registration) Fault {
	e, ok := t.at(r.STag)
	f := BadSTag
	for ok {
		w := e.load()
		if f = e.registrable(w, r); !e.unchanged(w) {
			f = BadSTag
			continue
		}
		if f != OK {
			break
		}
		if e.swap(w, w.taken()) {
			e.start.Store(r.Start)
			e.length.Store(r.Len)
			e.permit(r.Rights, r.OneTouch)
			e.publish(e.load().next(r.STag.Key(), KindRegion, wordValid))
			return OK
		}
	}
	t.refusals[f].Add(1)
	return f
}

// registrable returns OK if the entry with state w can become the region r, otherwise
// the fault. An entry whose memory has not been registered since Map has no rights.
func (e *entry) registrable(w word, r *Registration) Fault {
	switch {
	case !w.known(r.STag) || w.kind() != KindRegion:
		return BadSTag
	case !e.belongs(w, r.PD, r.QP):
		return WrongPD
	case w.valid() || w.windows() != 0:
		return Bound
	case r.Rights&^allRights != 0 || r.Rights&changing != 0 && r.Rights&LocalWrite == 0:
		return NoRight
	case r.Len == 0 || e.rights() != 0 || r.Len > e.length.Load():
		return NoSpace
	case r.Len-1 > math.MaxUint64-r.Start:
		return Wrap
	}
	return OK
}
