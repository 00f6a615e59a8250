package tpt

// Invalidate makes an entry of pd invalid: the verb. When it returns no engine
// is accessing its memory, and none will. An entry that is invalid already is
// no error. It waits for the engines, and must not be called from within a
// step of one. Errors: ErrSTag, ErrPD, ErrBound.
func (t *Table) Invalidate(s STag, pd PD) error {
	if err := t.revoke(s, pd, word.revoked); err != nil {
		return err
	}
	// Another caller made it invalid before, and engines may still use the memory.
	t.epochs.wait(t.epochs.ticket())
	return nil
}

// Deregister does what Invalidate does and frees the entry. The table uses the entry
// again, with another key, after half of the free entries have been used. Errors are
// those of Invalidate. If several calls name one STag, one of them succeeds.
func (t *Table) Deregister(s STag, pd PD) error {
	if err := t.revoke(s, pd, word.taken); err != nil {
		return err
	}
	t.epochs.wait(t.epochs.ticket())
	index := s.Index()
	e := &t.entries[index]
	e.fill(fields{})
	t.external.drop(index)
	e.publish(e.load().freed())
	t.release(index, pd)
	return nil
}

// revoke changes the state of an entry of pd to one that is not valid.
func (t *Table) revoke(s STag, pd PD, change func(word) word) error {
	e, ok := t.at(s)
	for ok {
		w := e.load()
		if !w.known(s) {
			break
		}
		has, windows := PD(e.pd.Load()), e.windows.Load()
		switch {
		case !e.unchanged(w):
			continue
		case has != pd:
			return fail(ErrPD, "invalidate STag %v in protection domain %d: it is in another one", s, pd)
		case windows != 0:
			return fail(ErrBound, "invalidate STag %v: %d windows are bound to it: unbind them first", s, windows)
		}
		if e.swap(w, change(w)) {
			return nil
		}
	}
	return fail(ErrSTag, "invalidate STag %v: there is none, or it has been deregistered", s)
}

// StartInvalidate makes an entry invalid for a peer or a work request (Send with
// Invalidate). It never waits: other engines may still access the memory until Passed
// returns true for the ticket.
//
// The fault is BadSTag if there is no such entry or windows are bound to it, and
// WrongPD if it is in another protection domain or bound to another queue pair.
// A peer may invalidate an entry that it may access and that is bound to its own
// queue pair. Several streams share any other entry, and a peer must not take it
// away from the others (RFC 5040 §8.1.1 rule 7): the fault is NoRight unless the
// entry has the right RemoteInvalidate. An entry that is invalid already is no
// fault (its owner may have been faster).
func (t *Table) StartInvalidate(s STag, pd PD, qp uint32) (Ticket, Fault) {
	e, ok := t.at(s)
	f := BadSTag
	for ok {
		w := e.load()
		if !w.known(s) {
			break
		}
		f = e.revocable(pd, qp)
		if !e.unchanged(w) {
			f = BadSTag
			continue
		}
		if f != OK {
			break
		}
		if !w.valid() || e.swap(w, w.revoked()) {
			return t.epochs.ticket(), OK
		}
	}
	t.refusals[f].Add(1)
	return 0, f
}

// Fail makes an entry invalid because its memory cannot be accessed any more. The
// engine that found this out calls Fail. Fail never waits. It leaves an entry that is
// free or invalid already unchanged.
func (t *Table) Fail(s STag) {
	for e, ok := t.at(s); ok; {
		if w := e.load(); !w.known(s) || !w.valid() || e.swap(w, w.revoked()) {
			return
		}
	}
}

// revocable decides whether a peer of the queue pair may invalidate the entry.
func (e *entry) revocable(pd PD, qp uint32) Fault {
	rights, bound := e.rights(), e.qp.Load() != 0
	switch {
	case !e.belongs(pd, qp):
		return WrongPD
	case e.windows.Load() != 0:
		return BadSTag
	case rights&RemoteInvalidate == 0 && (!bound || rights&remote == 0):
		return NoRight
	}
	return OK
}

// Passed reports whether every Reader has been quiet since the ticket was given out.
// If so, no Reader accesses the entry's memory any more, or will.
func (t *Table) Passed(k Ticket) bool { return t.epochs.passed(k) }
