package tpt

// Invalidate makes an entry of pd invalid. It implements the verb. Invalidate waits for
// the engines: when it returns, no engine accesses the entry's memory, and none will.
// The caller must therefore not be within a step of an engine. If the entry is invalid
// already, Invalidate succeeds. Errors: ErrSTag, ErrPD, ErrBound.
func (t *Table) Invalidate(s STag, pd PD) error {
	if err := t.revoke(s, pd, word.revoked); err != nil {
		return err
	}
	// Another caller has made the entry invalid, and engines may still use its memory.
	t.epochs.wait(t.epochs.ticket())
	return nil
}

// Deregister does what Invalidate does, and frees the entry. The table reuses the
// entry, with another key, after half of the free entries have been used. The errors
// are those of Invalidate. If several calls name one STag, only one of them succeeds.
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

// revoke replaces the state of an entry of pd by the result of change, which must not
// be valid.
func (t *Table) revoke(s STag, pd PD, change func(word) word) error {
	e, ok := t.at(s)
	for ok {
		w := e.load()
		if !w.known(s) {
			break
		}
		has := PD(e.pd.Load())
		switch {
		case !e.unchanged(w):
			continue
		case has != pd:
			return fail(ErrPD, "invalidate STag %v in protection domain %d: it is in another one", s, pd)
		case w.windows() != 0:
			return fail(ErrBound, "invalidate STag %v: %d windows are bound to it: unbind them first", s, w.windows())
		}
		if e.swap(w, change(w)) {
			return nil
		}
	}
	return fail(ErrSTag, "invalidate STag %v: there is none, or it has been deregistered", s)
}

// StartInvalidate makes an entry invalid for a peer or a work request (Send with
// Invalidate). It never waits. Other engines may still access the memory until Passed
// returns true for the ticket.
//
// The fault is BadSTag if there is no such entry or windows are bound to it. The fault
// is WrongPD if the entry is in another protection domain or bound to another queue
// pair. A peer may invalidate an entry that it may access and that is bound to its own
// queue pair. Any other entry is shared by several streams, so a peer must not
// invalidate it for the other streams (RFC 5040 §8.1.1 rule 7). The fault for such an
// entry is NoRight unless the entry has the right RemoteInvalidate. An entry that is
// invalid already is no fault, because its owner may have invalidated it just before.
func (t *Table) StartInvalidate(s STag, pd PD, qp uint32) (Ticket, Fault) {
	e, ok := t.at(s)
	f := BadSTag
	for ok {
		w := e.load()
		if !w.known(s) {
			break
		}
		f = e.revocable(w, pd, qp)
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
// engine that detects the failed access calls Fail. Fail never waits. It does not
// change an entry that is free or invalid already.
func (t *Table) Fail(s STag) {
	for e, ok := t.at(s); ok; {
		if w := e.load(); !w.known(s) || !w.valid() || e.swap(w, w.revoked()) {
			return
		}
	}
}

// revocable returns OK if a peer of the queue pair may invalidate the entry, otherwise
// the fault. w is the entry's state.
func (e *entry) revocable(w word, pd PD, qp uint32) Fault {
	rights, bound := e.rights(), e.qp.Load() != 0
	switch {
	case !e.belongs(pd, qp):
		return WrongPD
	case w.windows() != 0:
		return BadSTag
	case rights&RemoteInvalidate == 0 && (!bound || rights&remote == 0):
		return NoRight
	}
	return OK
}

// Passed reports whether every Reader has been outside a step since the ticket was
// issued. Then no Reader accesses the entry's memory any more, and none will.
func (t *Table) Passed(k Ticket) bool { return t.epochs.passed(k) }
