package unit

import (
	"encoding/binary"
	"slices"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// persistList is the length of the parameter list of PERSISTENT RESERVE OUT.
const persistList = 24

// Service actions of PERSISTENT RESERVE OUT (SPC-4 table 208).
const (
	actionReserve           = 1
	actionRelease           = 2
	actionPreempt           = 4
	actionPreemptAndAbort   = 5
	actionRegisterAndIgnore = 6
)

// planPersistOut checks PERSISTENT RESERVE OUT (SPC-4 §6.16).
func planPersistOut(_ *Unit, t *Task) Sense {
	switch t.row.sa {
	case actionReserve, actionRelease, actionPreempt, actionPreemptAndAbort:
		if t.CDB[2]>>4 != 0 || !kind(t.CDB[2]&0xf).valid() {
			return badField(2)
		}
	}
	if binary.BigEndian.Uint32(t.CDB[5:]) != persistList {
		return Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	}
	t.out(persistList)
	return Sense{}
}

// order is the parameter list of PERSISTENT RESERVE OUT, and who sent it.
type order struct {
	nexus   *Nexus
	kind    kind
	key     uint64 // RESERVATION KEY
	next    uint64 // SERVICE ACTION RESERVATION KEY
	aptpl   bool
	at      int  // index of the sender's registration; -1: the sender is not registered
	matches bool // the sender is registered with key
}

// order reads the parameter list.
func (u *Unit) order(t *Task) (order, Sense) {
	b := t.Data
	o := order{
		nexus: t.Nexus, kind: kind(t.CDB[2] & 0xf), at: u.pr.find(t.Nexus.name),
		key: binary.BigEndian.Uint64(b), next: binary.BigEndian.Uint64(b[8:]), aptpl: b[20]&0x01 != 0,
	}
	o.matches = o.at >= 0 && u.pr.keys[o.at].Key == o.key
	registers := t.row.sa == 0 || t.row.sa == actionRegisterAndIgnore
	if b[20]&0x0c != 0 || o.aptpl && registers && u.conf.Save == nil {
		return o, badParameter(20) // SPEC_I_PT, ALL_TG_PT, APTPL
	}
	return o, Sense{}
}

// commit runs change on the reservations and stores the result. If the result cannot be
// stored, nothing has changed.
func (u *Unit) commit(change func()) Sense {
	before := u.pr
	before.keys = slices.Clone(u.pr.keys)
	change()
	if err := u.save(); err != nil {
		u.pr = before
		return Sense{Key: HardwareError, Code: scsi.InternalTargetFailure}
	}
	return Sense{}
}

// maxRegistrations is how many registrations a unit keeps. They outlive their sessions, and
// an initiator may have any number of names of ports.
const maxRegistrations = 1024

// register executes the service actions REGISTER and REGISTER AND IGNORE EXISTING KEY
// (SPC-4 §5.13.7).
func (u *Unit) register(t *Task) Sense {
	o, s := u.order(t)
	if s.failed() {
		return s
	}
	if t.row.sa != actionRegisterAndIgnore && !o.matches && (o.at >= 0 || o.key != 0) {
		t.Status = ReservationConflict
		return Sense{}
	}
	if u.reserved != nil && u.reserved != t.Nexus {
		t.Status = ReservationConflict
		return Sense{}
	}
	if o.at < 0 && o.next != 0 && len(u.pr.keys) == maxRegistrations {
		return Sense{Key: IllegalRequest, Code: scsi.InsufficientRegistrations}
	}
	var gone kind
	s = u.commit(func() {
		u.pr.generation++
		u.pr.aptpl = o.aptpl
		switch {
		case o.next == 0 && o.at >= 0:
			gone = u.unregister(o.at)
		case o.next == 0:
		case o.at >= 0:
			u.pr.keys[o.at].Key = o.next
		default:
			u.pr.keys = append(u.pr.keys, registration{t.Nexus.name, o.next})
		}
	})
	if !s.failed() {
		u.tellReleased(t.Nexus, gone)
	}
	return s
}

// unregister removes a registration. If the reservation ends with it, unregister
// returns the type that it had.
func (u *Unit) unregister(i int) (gone kind) {
	name := u.pr.keys[i].Name
	held := u.pr.holds(name)
	u.pr.keys = slices.Delete(u.pr.keys, i, i+1)
	if held && (!u.pr.kind.allHold() || len(u.pr.keys) == 0) {
		gone = u.pr.kind
		u.pr.set("", 0)
	}
	return gone
}

// tellReleased establishes RESERVATIONS RELEASED for the registered nexuses but n, if a
// reservation of type gone has ended and gave them access (SPC-4 §5.13.11.2).
func (u *Unit) tellReleased(n *Nexus, gone kind) {
	if !gone.registrants() {
		return
	}
	u.others(n, func(o *Nexus) {
		if u.pr.find(o.name) >= 0 {
			o.attend(scsi.ReservationsReleased)
		}
	})
}

// reserve executes the service action RESERVE (SPC-4 §5.13.9).
func (u *Unit) reserve(t *Task) Sense {
	o, s := u.order(t)
	switch {
	case s.failed():
		return s
	case !o.matches:
		t.Status = ReservationConflict
	case u.pr.kind == 0:
		return u.commit(func() { u.pr.set(t.Nexus.name, o.kind) })
	case !u.pr.holds(t.Nexus.name) || u.pr.kind != o.kind:
		t.Status = ReservationConflict
	}
	return Sense{}
}

// release executes the service action RELEASE (SPC-4 §5.13.11.2).
func (u *Unit) release(t *Task) Sense {
	o, s := u.order(t)
	switch {
	case s.failed():
		return s
	case !o.matches:
		t.Status = ReservationConflict
		return Sense{}
	case !u.pr.holds(t.Nexus.name):
		return Sense{}
	case u.pr.kind != o.kind:
		return Sense{Key: IllegalRequest, Code: scsi.InvalidReleaseOfReservation}
	}
	gone := u.pr.kind
	if s = u.commit(func() { u.pr.set("", 0) }); !s.failed() {
		u.tellReleased(t.Nexus, gone)
	}
	return s
}

// clear executes the service action CLEAR (SPC-4 §5.13.11.6).
func (u *Unit) clear(t *Task) Sense {
	o, s := u.order(t)
	if s.failed() {
		return s
	}
	if !o.matches {
		t.Status = ReservationConflict
		return Sense{}
	}
	before := slices.Clone(u.pr.keys)
	s = u.commit(func() {
		u.pr.generation++
		u.pr.keys = nil
		u.pr.set("", 0)
	})
	if !s.failed() {
		u.tell(t.Nexus, before, scsi.ReservationsPreempted)
	}
	return s
}

// tell establishes a unit attention condition for the nexuses of registrations, but not
// for n.
func (u *Unit) tell(n *Nexus, of []registration, c scsi.Code) {
	u.others(n, func(o *Nexus) {
		if slices.ContainsFunc(of, func(r registration) bool { return r.Name == o.name }) {
			o.attend(c)
		}
	})
}

// preempt executes the service actions PREEMPT and PREEMPT AND ABORT (SPC-4
// §5.13.11.4, §5.13.11.5).
func (u *Unit) preempt(t *Task) Sense {
	o, s := u.order(t)
	if s.failed() {
		return s
	}
	if !o.matches {
		t.Status = ReservationConflict
		return Sense{}
	}
	all := u.pr.kind.allHold() && o.next == 0
	takes := all || u.pr.kind != 0 && !u.pr.kind.allHold() && o.next == u.holderKey()
	if !takes && o.next == 0 {
		return badParameter(8)
	}
	removed := u.preempted(o, all)
	if !takes && len(removed) == 0 && o.next != o.key {
		t.Status = ReservationConflict
		return Sense{}
	}
	before := u.pr.kind
	s = u.commit(func() { u.drop(o, removed, takes) })
	if s.failed() {
		return s
	}
	u.tell(t.Nexus, removed, scsi.RegistrationsPreempted)
	if takes && before != o.kind && before.registrants() {
		u.tell(t.Nexus, u.pr.keys, scsi.ReservationsReleased)
	}
	if t.row.sa == actionPreemptAndAbort {
		u.abort(removed)
	}
	return Sense{}
}

// holderKey returns the key of the only holder.
func (u *Unit) holderKey() uint64 {
	if i := u.pr.find(u.pr.holder); i >= 0 {
		return u.pr.keys[i].Key
	}
	return 0
}

// preempted returns the registrations that a preemption removes. The sender's own
// remains.
func (u *Unit) preempted(o order, all bool) (removed []registration) {
	for i, r := range u.pr.keys {
		if i != o.at && (all || r.Key == o.next) {
			removed = append(removed, r)
		}
	}
	return removed
}

// drop removes registrations and gives the reservation to the sender if takes is set.
func (u *Unit) drop(o order, removed []registration, takes bool) {
	u.pr.generation++
	u.pr.keys = slices.DeleteFunc(u.pr.keys, func(r registration) bool { return slices.Contains(removed, r) })
	if takes {
		u.pr.set(o.nexus.name, o.kind)
	}
}

// abort asks the transport to abort the tasks of the nexuses of registrations.
func (u *Unit) abort(of []registration) {
	if u.conf.Abort == nil {
		return
	}
	for _, n := range u.nexuses {
		if slices.ContainsFunc(of, func(r registration) bool { return r.Name == n.name }) {
			u.conf.Abort(n)
		}
	}
}
