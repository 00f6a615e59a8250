package tpt

// Invalidate makes an entry of pd invalid. It implements the verb. Invalidate waits for
// the engines: when it returns, no engine accesses the entry's memory, and none will.
// The caller must therefore not be within a step of an engine. If the entry is invalid
// already, Invalidate succeeds. Errors: ErrSTag, ErrPD, ErrBound.
func (t *Table) Invalidate(s STag, pd PD) error {
	if _, err := t.revoke(s, pd, anyKind, word.revoked); err != nil {
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
	if _, err := t.revoke(s, pd, anyKind, word.taken); err != nil {
		return err
	}
	t.epochs.wait(t.epochs.ticket())
	t.free(s.Index())
	return nil
}

// anyKind is the argument of revoke that accepts entries of all kinds.
const anyKind = KindFree

// revoke replaces the state of an entry of pd and of the kind by the result of change,
// which must not be valid. It returns the old state. If the entry is a window, revoke
// ends the binding.
func (t *Table) revoke(s STag, pd PD, kind Kind, change func(word) word) (word, error) {
	e, ok := t.at(s)
	for ok {
		w := e.load()
		if !w.known(s) || kind != anyKind && w.kind() != kind {
			break
		}
		has, parent := PD(e.pd.Load()), e.parent.Load()
		switch {
		case !e.unchanged(w):
			continue
		case has != pd:
			return 0, fail(ErrPD, "invalidate STag %v in protection domain %d: it is in another one", s, pd)
		case w.windows() != 0:
			return 0, fail(ErrBound, "invalidate STag %v: %d windows are bound to it: unbind them first", s, w.windows())
		}
		if e.swap(w, change(w)) {
			t.unbound(w, parent)
			return w, nil
		}
	}
	return 0, fail(ErrSTag, "invalidate STag %v: there is none, or it has been deregistered", s)
}

// StartInvalidate makes an entry invalid for a peer (Send with Invalidate). It never
// waits, locks or allocates. Other engines may still access the memory until Passed
// returns true for the ticket. A window becomes unbound.
//
// The caller is in a step of the engine that runs the queue pair. If the entry is bound to
// the queue pair, only that engine can access the memory, and the ticket is 0: it has passed.
//
// The fault is BadSTag if there is no such entry. The fault is Bound if windows are
// bound to it. The fault is WrongPD if the entry is in another protection domain or
// bound to another queue pair. A peer may invalidate an entry that it may access and
// that is bound to its own queue pair. Any other entry is shared by several streams, so
// a peer must not invalidate it for the other streams (RFC 5040 §8.1.1 rule 7). The
// fault for such an entry is NoRight unless the entry has the right RemoteInvalidate. An
// entry that is invalid already is no fault, because its owner may have invalidated it
// just before. The entry may be another member's of the group, if it is bound to no queue
// pair. A window of another member cannot be invalidated (BadSTag).
func (t *Table) StartInvalidate(s STag, pd PD, qp uint32) (Ticket, Fault) {
	own, f := t.withdraw(s, pd, qp, true, word.revoked)
	if f != OK || own {
		return 0, f
	}
	return t.epochs.ticket(), OK
}

// StartLocalInvalidate makes an entry invalid for a work request of its owner. It does
// what StartInvalidate does, and needs no right. The faults are BadSTag, WrongPD and
// Bound.
func (t *Table) StartLocalInvalidate(s STag, pd PD, qp uint32) (Ticket, Fault) {
	if _, f := t.withdraw(s, pd, qp, false, word.revoked); f != OK {
		return 0, f
	}
	return t.epochs.ticket(), OK
}

// withdraw replaces the state of an entry by the result of change, which must not be
// valid. It does so for a queue pair, or for the peer of the queue pair. An entry that
// is invalid already changes only if change locks it. An impossible index takes as long as
// a wrong key. own reports that the entry was valid, and bound to the queue pair.
func (t *Table) withdraw(s STag, pd PD, qp uint32, peer bool, change func(word) word) (own bool, f Fault) {
	e, ok := t.at(s)
	if !ok && peer && t.spaces != nil {
		e, ok = t.others(s)
	}
	f = BadSTag
	for {
		w, parent, bound := e.load(), e.parent.Load(), e.qp.Load() != 0
		if !w.known(s) || !ok {
			f = BadSTag // an earlier round may have set f to OK, before another caller changed the entry
			break
		}
		f = e.revocable(w, pd, qp, peer)
		if !e.unchanged(w) {
			continue
		}
		if f != OK {
			break
		}
		if next := change(w); !w.valid() && !next.busy() || e.swap(w, next) {
			t.unbound(w, parent)
			return bound && w.valid(), OK
		}
	}
	t.refusals[f].Add(1)
	return false, f
}

// Fail makes an entry invalid because its memory cannot be accessed any more. The
// engine that detects the failed access calls Fail. Fail never waits. It does not
// change an entry that is free or invalid already.
func (t *Table) Fail(s STag) { t.end(s) }

// revocable returns OK if the queue pair may invalidate the entry, otherwise the fault.
// w is the entry's state. peer says that the queue pair's peer asks for it.
func (e *entry) revocable(w word, pd PD, qp uint32, peer bool) Fault {
	rights, bound := e.rights(), e.qp.Load() != 0
	switch {
	case !e.belongs(w, pd, qp):
		return WrongPD
	case w.windows() != 0:
		return Bound
	case peer && rights&RemoteInvalidate == 0 && (!bound || rights&remote == 0):
		return NoRight
	}
	return OK
}

// Passed reports whether every Reader has been outside a step since the ticket was
// issued. Then no Reader accesses the entry's memory any more, and none will.
func (t *Table) Passed(k Ticket) bool { return t.epochs.passed(k) }
