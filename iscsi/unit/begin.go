package unit

import "github.com/stag-rdma/stag/iscsi/scsi"

// Begin checks a command. If Begin returns false, the command has ended, and Status and
// Sense are set. Begin asks the conditions in this order: is there a unit, is the CDB
// known, is there a unit attention, does the target port give access, is the unit
// reserved, is the CDB right, is the medium ready and writable.
func (u *Unit) Begin(t *Task) bool {
	t.reset()
	r, s := find(&t.CDB)
	switch {
	case u.conf.Backend == nil && (r == nil || r.flags&anyUnit == 0):
		t.fail(Sense{Key: IllegalRequest, Code: scsi.LogicalUnitNotSupported})
		return false
	case r == nil:
		t.fail(s)
		return false
	}
	t.row = r
	if r.flags&noUA == 0 {
		if ua, pending := t.Nexus.attention(); pending {
			t.fail(ua)
			return false
		}
	}
	if denied := u.denied(t.Nexus, r.flags); denied.failed() {
		t.fail(denied)
		return false
	}
	if u.conflict(t.Nexus, r.flags) {
		t.Status = ReservationConflict
		return false
	}
	if s.failed() {
		t.fail(s)
		return false
	}
	return u.plan(t)
}

// Open is Begin for a command that only reads or writes blocks. Open needs no lock: the
// transport may call it in a step of an engine. Open returns false if the command needs
// Begin; the task is then as before. Open returns true if the transport may move the
// data and call Run.
func (n *Nexus) Open(t *Task) bool {
	need, plan := uint32(mayRead), planRead
	switch t.CDB[0] {
	case 0x08, 0x28, 0x88, 0xa8:
	case 0x0a, 0x2a, 0x8a, 0xaa:
		need, plan = mayWrite, planWrite
	default:
		return false
	}
	if n.gate.Load()&need == 0 {
		return false
	}
	t.reset()
	r := rows[t.CDB[0]][0]
	if r.reserved(&t.CDB).failed() {
		return false
	}
	t.row = r
	if plan(n.unit, t).failed() || t.Dir == DataOut && t.EDTL < t.Want {
		t.reset()
		return false
	}
	return true
}

// plan lets the command's row check the CDB, and then checks the medium.
func (u *Unit) plan(t *Task) bool {
	r := t.row
	s := u.usable(r.flags)
	if !s.failed() && r.plan != nil {
		s = r.plan(u, t)
	}
	if !s.failed() && r.flags&writes != 0 {
		s, _ = u.writeProtected()
	}
	if s.failed() {
		t.fail(s)
		t.Dir, t.Want = NoData, 0
		return false
	}
	if t.Dir == DataIn { // an allocation length may be much more than the data
		t.Want = min(t.Want, uint32(u.conf.MaxTransfer))
	}
	if t.Dir == DataOut && t.EDTL < t.Want && r.flags&partial == 0 {
		// The residual count says how much is missing.
		t.fail(Sense{Key: IllegalRequest, Code: scsi.InvalidFieldInInformationUnit})
		return false
	}
	return true
}

// usable returns why the medium cannot be used by a command with the given flags.
func (u *Unit) usable(f flag) Sense {
	if u.sanitizing != nil && f&duringSanitize == 0 {
		return u.sanitizing.inProgress()
	}
	if u.unclean && f&sanitized == 0 {
		return Sense{Key: MediumError, Code: scsi.SanitizeFailed}
	}
	if f&medium != 0 {
		return u.notReady()
	}
	return Sense{}
}

// Run executes a task that Begin or Open has let through. All Data-Out must be in
// t.Data. Run may block in the backend.
func (u *Unit) Run(t *Task) {
	if t.row.run == nil {
		return
	}
	s := Sense{}
	if !t.Lent && u.sanitizing != nil && t.row.flags&duringSanitize == 0 { // it began before the operation
		s = u.sanitizing.inProgress()
	} else {
		s = t.row.run(u, t)
	}
	if s.failed() {
		t.fail(s)
	}
	u.pass(t).add(-oneClaim)
	if t.row.flags&exclusive != 0 {
		u.publish()
	}
}

// Lend returns the memory of the backend that the task of READ or WRITE is about, of
// Want octets. The transport then moves the data between that memory and the wire, sets
// t.Data to it and t.Lent, calls Run, and calls Settle in any case. Lend returns nil if the
// backend lends nothing, if an atomic command has claimed these blocks, or if the command is
// of another kind. Lend and Settle do not block, lock or allocate.
func (u *Unit) Lend(t *Task) []byte {
	l, ok := u.conf.Backend.(Lender)
	if !ok || t.Want == 0 || !t.row.lends() {
		return nil
	}
	off, n := u.offset(t.lba), uint64(t.Want)
	if t.Dir != DataOut {
		return l.Lend(off, int64(n), false)
	}
	if !u.loans.lend(off, n) {
		return nil
	}
	mem := l.Lend(off, int64(n), true)
	if t.loaned = mem != nil; !t.loaned {
		u.loans.settle(off, n)
	}
	return mem
}

// lends reports whether the data of the command are blocks of the medium.
func (r *row) lends() bool {
	switch r.op {
	case 0x08, 0x28, 0x88, 0xa8, 0x0a, 0x2a, 0x8a, 0xaa:
		return true
	}
	return false
}

// Quick reports whether Run of a task for which Lend returned memory needs nothing of
// the backend, so that it does not block.
func (t *Task) Quick() bool {
	forces := len(t.row.usage) > 6 && t.Dir == DataOut && t.CDB[1]&forceAccess != 0
	return t.Lent && !forces
}
