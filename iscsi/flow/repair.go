package flow

import (
	"slices"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// repair is what an Initiator needs for error recovery level 1 (RFC 7143 §7.1.4.1,
// §7.1.4.2): it asks the target for PDUs again whose data digest is wrong. It belongs to
// the step. An Initiator at level 0 has none.
//
// The header of such a PDU is right, because a wrong header digest ends the connection. So
// the numbers go on, and the commands behind it do not wait. ExpStatSN is the exception: it
// does not acknowledge a status whose data is not whole.
type repair struct {
	losses   []loss    // Data-In PDUs that the target sends again
	early    []verdict // statuses of commands that have losses
	statuses []status  // PDUs with a StatSN of their own that the target sends again
	acks     []ack     // DataACKs that wait for losses
	leaving  []snack   // SNACKs that have not left, the oldest first
	retries  []int     // slots of commands that the target has discarded because of their immediate data
}

// newRepair makes the repair of an Initiator with so many slots. The lists do not grow. A slot
// has one status and one retry at a time, so only losses and their SNACKs can be too many.
func newRepair(slots int) *repair {
	losses := max(64, 2*slots)
	return &repair{
		losses: make([]loss, 0, losses), early: make([]verdict, 0, slots), statuses: make([]status, 0, slots),
		acks: make([]ack, 0, slots), leaving: make([]snack, 0, losses+slots), retries: make([]int, 0, slots),
	}
}

// add appends an element to a list that has room. If it has none, add returns false.
func add[T any](list *[]T, e T) bool {
	if len(*list) == cap(*list) {
		return false
	}
	*list = append(*list, e)
	return true
}

// setLevel makes the machine ready for a connection with an ErrorRecoveryLevel.
func (f *Initiator) setLevel(level uint8) {
	f.repair = nil
	if level != 0 {
		f.repair = newRepair(len(f.states))
	}
}

// loss is a Data-In PDU that the target sends again.
type loss struct {
	slot       int
	sn, off, n uint32 // DataSN, Buffer Offset, octets
	asked      bool   // a SNACK asks for it
	tries      int
	due        clock.Instant // when the target must have sent it again
}

// verdict is the status of a command that has losses.
type verdict struct {
	slot   int
	header pdu.Header
}

// status is a PDU that the target sends again with the same StatSN.
type status struct {
	sn    seq.Num
	tries int
	due   clock.Instant
}

// ack is the acknowledgment of data that the target has asked for.
type ack struct {
	slot int
	ttt  pdu.Tag
	lun  uint64
}

// snack is a SNACK Request that has not left.
type snack struct {
	kind     pdu.SNACKType
	lun      uint64
	itt, ttt pdu.Tag
	first, n uint32 // BegRun, RunLength
}

// mostTries is how often one PDU may arrive with a wrong digest. A line on which so many in
// turn are wrong is broken.
const mostTries = 8

// repairTime is how long the target may take to send a PDU again. A target may have dropped a
// status, and may ignore that it is asked for (LIO does so with a Reject). The connection then
// ends, as at level 0.
const repairTime = 30 * time.Second

// deadline returns when the target must have sent the next PDU again, or Never.
func (r *repair) deadline() (at clock.Instant) {
	if r == nil {
		return clock.Never
	}
	for i := range r.losses {
		at = clock.Sooner(at, r.losses[i].due)
	}
	for i := range r.statuses {
		at = clock.Sooner(at, r.statuses[i].due)
	}
	return at
}

// remove removes element i of a list. The order does not matter.
func remove[T any](list *[]T, i int) {
	last := len(*list) - 1
	(*list)[i] = (*list)[last]
	*list = (*list)[:last]
}

// lost returns the index of the loss of a slot with a DataSN, or -1.
func (r *repair) lost(slot int, sn uint32) int {
	for i := range r.losses {
		if l := &r.losses[i]; l.slot == slot && l.sn == sn {
			return i
		}
	}
	return -1
}

// misses reports whether a slot has losses.
func (r *repair) misses(slot int) bool {
	return slices.ContainsFunc(r.losses, func(l loss) bool { return l.slot == slot })
}

// judged reports whether the status of a slot has arrived.
func (r *repair) judged(slot int) bool {
	return slices.ContainsFunc(r.early, func(v verdict) bool { return v.slot == slot })
}

// status returns the index of a PDU with a StatSN that comes again, or -1.
func (r *repair) status(sn seq.Num) int {
	return slices.IndexFunc(r.statuses, func(s status) bool { return s.sn == sn })
}

// forget drops everything about a command that has ended.
func (r *repair) forget(slot int) {
	r.losses = slices.DeleteFunc(r.losses, func(l loss) bool { return l.slot == slot })
	r.early = slices.DeleteFunc(r.early, func(v verdict) bool { return v.slot == slot })
	r.acks = slices.DeleteFunc(r.acks, func(a ack) bool { return a.slot == slot })
	r.retries = slices.DeleteFunc(r.retries, func(s int) bool { return s == slot })
}

// acknowledged returns the ExpStatSN to send: next, or less if a status is missing, or the
// data of a command with a status is.
func (r *repair) acknowledged(next seq.Num) seq.Num {
	for i := range r.early {
		if sn := r.early[i].header.StatSN(); sn.Before(next) {
			next = sn
		}
	}
	for i := range r.statuses {
		if sn := r.statuses[i].sn; sn.Before(next) {
			next = sn
		}
	}
	return next
}

// ask queues a SNACK. It returns false if there is no room.
func (r *repair) ask(s snack) bool { return add(&r.leaving, s) }
