package tpt

// Touch records the first use of an entry of one touch by a message whose last segment
// has arrived out of order. sequence is the position at which the stream reaches the
// end of that segment. The entry stays valid. When the stream is there, the caller must
// call Spend. Touch returns false if the entry has been used already, or is not valid.
// The caller must then call Spend and end the connection (US 7,299,266, FIG. 18B).
// Touch never waits, locks or allocates.
func (t *Table) Touch(s STag, sequence uint64) bool {
	for e, ok := t.at(s); ok; {
		w := e.load()
		if !w.known(s) || !w.valid() || w.touched() || e.access.Load()&accessOneTouch == 0 {
			return false
		}
		if e.swap(w, w|wordTouched) {
			e.sequence.Store(sequence)
			return true
		}
	}
	return false
}

// Spend makes an entry of one touch invalid, because a message has used the entry. A
// caller that gets true may use what Check returned before, until the Leave of its
// Reader. If several callers spend an entry, one of them gets true. The ticket is that of StartInvalidate.
// Spend never waits, locks or allocates.
func (t *Table) Spend(s STag) (Ticket, bool) {
	if !t.end(s) {
		return 0, false
	}
	return t.epochs.ticket(), true
}

// end makes an entry invalid. It returns false if the entry is free or invalid already.
func (t *Table) end(s STag) bool {
	for e, ok := t.at(s); ok; {
		w, parent := e.load(), e.parent.Load()
		if !w.known(s) || !w.valid() {
			return false
		}
		if e.swap(w, w.revoked()) {
			t.unbound(w, parent)
			return true
		}
	}
	return false
}
