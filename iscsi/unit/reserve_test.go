package unit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// prOut executes PERSISTENT RESERVE OUT.
func (r *rig) prOut(n *Nexus, action, kind int, key, next uint64) *Task {
	r.t.Helper()
	list := make([]byte, persistList)
	binary.BigEndian.PutUint64(list, key)
	binary.BigEndian.PutUint64(list[8:], next)
	return r.run(n, fmt.Sprintf("5f %02x %02x 00 00 00 00 00 18 00", action, kind), list, 0)
}

// must is prOut that succeeds.
func (r *rig) must(n *Nexus, action, kind int, key, next uint64) {
	r.t.Helper()
	if t := r.prOut(n, action, kind, key, next); t.Status != Good {
		r.t.Fatalf("action %d: status %v, sense %v, %v", action, t.Status, t.Sense.Key, t.Sense.Code)
	}
}

// prIn executes PERSISTENT RESERVE IN.
func (r *rig) prIn(n *Nexus, action int) []byte {
	r.t.Helper()
	return r.good(n, fmt.Sprintf("5e %02x 00 00 00 00 00 ff ff 00", action), nil, 65535)
}

const tur = "00 00 00 00 00 00"

// SPC-2 §7.19, §7.21.
func TestReserve6(t *testing.T) {
	r := newRig(t)
	r.good(r.a, "16 00 00 00 00 00", nil, 0)
	r.good(r.a, "16 00 00 00 00 00", nil, 0)
	r.conflict(r.b, "16 00 00 00 00 00", nil, 0)
	r.good(r.b, "17 00 00 00 00 00", nil, 0)
	for _, cdb := range []string{tur, "1a 08 3f 00 ff 00", cdb10(0x28, 0, 0, 1), "25 00 00 00 00 00 00 00 00 00", "5e 00 00 00 00 00 00 ff ff 00"} {
		r.conflict(r.b, cdb, nil, 512)
	}
	r.good(r.b, "12 00 00 00 ff 00", nil, 255)
	r.good(r.b, "a0 00 00 00 00 00 00 00 10 00 00 00", nil, 4096)
	r.unit.Reset()
	r.good(r.b, "03 00 00 00 ff 00", nil, 255)
	r.good(r.b, "16 00 00 00 00 00", nil, 0)
	r.unit.Detach(r.b, false)
	r.good(r.a, "03 00 00 00 ff 00", nil, 255)
	r.good(r.a, "16 00 00 00 00 00", nil, 0)
}

// SPC-4 table 65 and SBC-3 table 14: who may do what under each type. c is a third
// initiator, which is not registered.
func TestPersistentAccess(t *testing.T) {
	read, write := cdb10(0x28, 0, 0, 1), cdb10(0x2a, 0, 0, 1)
	for _, c := range []struct {
		kind                                         int
		otherReads, otherWrites, anyReads, anyWrites bool
	}{
		{writeExclusive, true, false, true, false},
		{exclusiveAccess, false, false, false, false},
		{writeExclusiveRegistrantsOnly, true, true, true, false},
		{exclusiveAccessRegistrantsOnly, true, true, false, false},
		{writeExclusiveAllRegistrants, true, true, true, false},
		{exclusiveAccessAllRegistrants, true, true, false, false},
	} {
		r := newRig(t)
		third := r.unit.Attach("iqn.c", nil)
		r.must(r.a, 0, 0, 0, 1)
		r.must(r.b, 0, 0, 0, 2)
		r.must(r.a, 1, c.kind, 1, 0)
		check := func(who string, n *Nexus, cdb string, out []byte, want bool) {
			t.Helper()
			if got := r.run(n, cdb, out, 512).Status; (got == Good) != want || !want && got != ReservationConflict {
				t.Errorf("type %d, %s, %s: status %v, want allowed %v", c.kind, who, cdb, got, want)
			}
		}
		block := make([]byte, 512)
		check("holder", r.a, read, nil, true)
		check("holder", r.a, write, block, true)
		check("registered", r.b, read, nil, c.otherReads)
		check("registered", r.b, write, block, c.otherWrites)
		check("stranger", third, read, nil, c.anyReads)
		check("stranger", third, write, block, c.anyWrites)
		for _, cdb := range []string{tur, "25 00 00 00 00 00 00 00 00 00", "12 00 00 00 ff 00", "5e 01 00 00 00 00 00 ff ff 00"} {
			check("stranger", third, cdb, nil, true)
		}
		check("stranger", third, "1a 08 3f 00 ff 00", nil, false)
		r.conflict(third, "16 00 00 00 00 00", nil, 0)
		if task := r.prOut(third, 1, c.kind, 0, 0); task.Status != ReservationConflict {
			t.Errorf("type %d: a stranger reserves: %v", c.kind, task.Status)
		}
	}
}

// SPC-4 §5.13.7: registration, and what PERSISTENT RESERVE IN says of it.
func TestRegister(t *testing.T) {
	r := newRig(t)
	if s := r.prOut(r.a, 0, 0, 5, 6).Status; s != ReservationConflict {
		t.Errorf("REGISTER with a key of nobody: %v", s)
	}
	r.must(r.a, 0, 0, 0, 0x11)
	if s := r.prOut(r.a, 0, 0, 5, 6).Status; s != ReservationConflict {
		t.Errorf("REGISTER with a wrong key: %v", s)
	}
	r.must(r.a, 0, 0, 0x11, 0x12)
	r.must(r.b, 6, 0, 0x99, 0x21)
	if b := r.prIn(r.a, 0); !bytes.Equal(b, octets(t, "00000003 00000010 0000000000000012 0000000000000021")) {
		t.Errorf("READ KEYS: % x", b)
	}
	r.must(r.b, 1, writeExclusive, 0x21, 0)
	if b := r.prIn(r.a, 1); !bytes.Equal(b, octets(t, "00000003 00000010 0000000000000021 00000000 00 01 0000")) {
		t.Errorf("READ RESERVATION: % x", b)
	}
	b := r.prIn(r.a, 3)
	if !bytes.Contains(b, []byte("\x45\x00\x00\x1ciqn.b,i,0x80000000000b\x00\x00")) && !bytes.Contains(b, []byte("iqn.b,i,0x80000000000b\x00")) {
		t.Errorf("READ FULL STATUS: %q", b)
	}
	if b := r.prIn(r.a, 2); !bytes.Equal(b, octets(t, "0008 00 80 ea01 0000")) {
		t.Errorf("REPORT CAPABILITIES: % x", b)
	}
	if task := r.run(r.a, "5f 00 00 00 00 00 00 00 18 00", append(make([]byte, 20), 1, 0, 0, 0), 0); task.Sense.Code != scsi.InvalidFieldInParameterList {
		t.Errorf("APTPL without a place to save: %04x", task.Sense.Code)
	}
	r.bad(r.a, "5f 00 00 00 00 00 00 00 17 00", make([]byte, 23), 0, IllegalRequest, scsi.ParameterListLengthError)
	r.bad(r.a, "5f 01 02 00 00 00 00 00 18 00", make([]byte, 24), 0, IllegalRequest, scsi.InvalidFieldInCDB)
	r.bad(r.a, "5f 01 11 00 00 00 00 00 18 00", make([]byte, 24), 0, IllegalRequest, scsi.InvalidFieldInCDB)
}

// SPC-4 §5.13.11: unit attentions of RELEASE, CLEAR and PREEMPT.
func TestPersistentAttentions(t *testing.T) {
	both := func() *rig {
		r := newRig(t)
		r.must(r.a, 0, 0, 0, 1)
		r.must(r.b, 0, 0, 0, 2)
		return r
	}
	r := both()
	r.must(r.a, 1, writeExclusive, 1, 0)
	r.must(r.a, 2, writeExclusive, 1, 0)
	r.good(r.b, tur, nil, 0)
	r.must(r.a, 1, writeExclusiveRegistrantsOnly, 1, 0)
	if s := r.prOut(r.a, 2, writeExclusive, 1, 0).Sense.Code; s != scsi.InvalidReleaseOfReservation {
		t.Errorf("RELEASE with another type: %04x", s)
	}
	r.must(r.a, 2, writeExclusiveRegistrantsOnly, 1, 0)
	r.bad(r.b, tur, nil, 0, UnitAttention, scsi.ReservationsReleased)
	r.good(r.a, tur, nil, 0)
	r.must(r.a, 3, 0, 1, 0)
	r.bad(r.b, tur, nil, 0, UnitAttention, scsi.ReservationsPreempted)

	var aborted []*Nexus
	r = both()
	r.unit.conf.Abort = func(n *Nexus) { aborted = append(aborted, n) }
	r.must(r.a, 1, exclusiveAccess, 1, 0)
	r.must(r.b, 5, writeExclusive, 2, 1)
	r.bad(r.a, tur, nil, 0, UnitAttention, scsi.RegistrationsPreempted)
	r.conflict(r.a, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
	if len(aborted) != 1 || aborted[0] != r.a {
		t.Errorf("aborted the tasks of %d nexuses", len(aborted))
	}
}

// SPC-4 §5.13.5: with APTPL reservations outlive the process, and what cannot be saved
// does not happen.
func TestActivatePersist(t *testing.T) {
	var state []byte
	var fail error
	keep := func(c *Config) {
		c.State = state
		c.Save = func(b []byte) error { state = bytes.Clone(b); return fail }
	}
	r := newRig(t, keep)
	list := make([]byte, persistList)
	list[15], list[20] = 7, 1
	r.good(r.a, "5f 06 00 00 00 00 00 00 18 00", list, 0)
	r.must(r.a, 1, writeExclusive, 7, 0)
	r = newRig(t, keep)
	r.conflict(r.b, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
	r.good(r.a, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
	fail = errors.New("disk full")
	if s := r.prOut(r.a, 2, writeExclusive, 7, 0).Sense.Key; s != HardwareError {
		t.Errorf("sense key %v", s)
	}
	r.conflict(r.b, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
	fail = nil
	list = make([]byte, persistList)
	list[15] = 8
	r.good(r.a, "5f 06 00 00 00 00 00 00 18 00", list, 0) // APTPL is 0 now
	r = newRig(t, keep)
	r.good(r.b, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
}

// TestReservationCourses runs random courses of reservations against a plain model.
func TestReservationCourses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		nexuses := []*Nexus{r.a, r.b, r.unit.Attach("iqn.c", nil)}
		m := newModel(len(nexuses))
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(nexuses)-1).Draw(rt, "initiator")
			for { // unit attentions have tests of their own
				if _, pending := nexuses[i].attention(); !pending {
					break
				}
			}
			action := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, opRead, opWrite, opReserve6, opRelease6}).Draw(rt, "action")
			kind := rapid.SampledFrom([]int{1, 3, 5, 6, 7, 8}).Draw(rt, "type")
			key, next := rapid.Uint64Range(0, 3).Draw(rt, "key"), rapid.Uint64Range(0, 3).Draw(rt, "next")
			var got *Task
			switch action {
			case opRead:
				got = r.run(nexuses[i], cdb10(0x28, 0, 0, 1), nil, 512)
			case opWrite:
				got = r.run(nexuses[i], cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
			case opReserve6, opRelease6:
				got = r.run(nexuses[i], fmt.Sprintf("%02x 00 00 00 00 00", 0x16+action-opReserve6), nil, 0)
			default:
				got = r.prOut(nexuses[i], action, kind, key, next)
			}
			if want := m.step(i, action, kind, key, next); got.Status != want {
				rt.Fatalf("initiator %d, action %d, type %d, keys %d, %d: status %v, sense %v, want %v", i, action, kind, key, next, got.Status, got.Sense.Code, want)
			}
		}
	})
}

// SPC-4 §5.13.7: a unit has room for so many registrations. They outlive their nexuses, so an
// initiator that comes again and again under other names must not take all memory.
func TestRegistrationLimit(t *testing.T) {
	r := newRig(t)
	for i := range maxRegistrations {
		n := r.unit.Attach(fmt.Sprint("iqn.c", i), nil)
		r.must(n, 0, 0, 0, 7)
		r.unit.Detach(n, false)
	}
	if s := r.prOut(r.a, 6, 0, 0, 1); s.Status != CheckCondition || s.Sense.Code != scsi.InsufficientRegistrations {
		t.Errorf("one too many: status %v, sense %v", s.Status, s.Sense.Code)
	}
	last := r.unit.Attach(fmt.Sprint("iqn.c", maxRegistrations-1), nil)
	r.must(last, 0, 0, 7, 0)
	r.must(r.a, 0, 0, 0, 1)
}
