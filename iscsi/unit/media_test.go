package unit

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// SBC-3 §5.22: a medium that is ejected cannot be used. One that is stopped can.
func TestStartStop(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Removable = true })
	const eject, load, stop, start = "1b 00 00 00 02 00", "1b 00 00 00 03 00", "1b 00 00 00 00 00", "1b 00 00 00 01 00"
	r.good(r.a, eject, nil, 0)
	r.bad(r.a, "00 00 00 00 00 00", nil, 0, NotReady, scsi.MediumNotPresent)
	r.bad(r.b, cdb10(0x28, 0, 0, 1), nil, 512, NotReady, scsi.MediumNotPresent)
	r.good(r.a, load, nil, 0)
	r.good(r.a, cdb10(0x28, 0, 0, 1), nil, 512)
	r.bad(r.b, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.MediumMayHaveChanged)
	r.good(r.a, stop, nil, 0)
	r.good(r.a, cdb10(0x28, 0, 0, 1), nil, 512)
	r.good(r.a, start, nil, 0)
	r.good(r.b, "1b 00 00 00 12 00", nil, 0) // power condition ACTIVE: LOEJ is ignored
	r.good(r.b, tur, nil, 0)
	fixed := newRig(t)
	fixed.bad(fixed.a, eject, nil, 0, IllegalRequest, scsi.InvalidFieldInCDB)
}

// SBC-3 §5.9: one nexus that prevents the removal is enough, until it allows it, is
// lost, or the unit is reset.
func TestPreventRemoval(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Removable = true })
	const prevent, allow, eject = "1e 00 00 00 01 00", "1e 00 00 00 00 00", "1b 00 00 00 02 00"
	r.good(r.a, prevent, nil, 0)
	r.bad(r.b, eject, nil, 0, IllegalRequest, scsi.RemovalPrevented)
	r.good(r.b, allow, nil, 0)
	r.bad(r.b, eject, nil, 0, IllegalRequest, scsi.RemovalPrevented)
	r.unit.Reset()
	r.bad(r.b, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.DeviceReset)
	r.good(r.b, eject, nil, 0)
	r.good(r.b, prevent, nil, 0)
	r.unit.Detach(r.b, true)
	r.bad(r.a, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.DeviceReset)
	r.good(r.a, "1b 00 00 00 03 00", nil, 0)
	b := r.unit.Attach(r.b.Name(), nil)
	r.bad(b, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.NexusLoss)
	r.good(b, "00 00 00 00 00 00", nil, 0)
}

// SAM-5 §5.14: INQUIRY, REPORT LUNS and REQUEST SENSE pass a unit attention condition.
// Only the last one clears it.
func TestUnitAttention(t *testing.T) {
	r := newRig(t)
	r.a.Attend(scsi.ReportedLUNsChanged)
	r.a.Attend(scsi.ReportedLUNsChanged)
	r.a.Attend(scsi.ModeParametersChanged)
	r.good(r.a, "12 00 00 00 ff 00", nil, 255)
	r.good(r.a, "a0 00 00 00 00 00 00 00 10 00 00 00", nil, 4096)
	if b := r.good(r.a, "03 00 00 00 ff 00", nil, 255); b[2] != byte(UnitAttention) || b[12] != 0x3f || b[13] != 0x0e {
		t.Errorf("REQUEST SENSE: % x", b)
	}
	r.bad(r.a, cdb10(0x28, 0, 0, 1), nil, 512, UnitAttention, scsi.ModeParametersChanged)
	r.good(r.a, cdb10(0x28, 0, 0, 1), nil, 512)
	if b := r.good(r.a, "03 00 00 00 ff 00", nil, 255); b[2] != byte(NoSense) {
		t.Errorf("REQUEST SENSE: % x", b)
	}
}

// SBC-3 §4.12: a unit that is read only.
func TestReadOnly(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ReadOnly = true })
	for _, cdb := range []string{cdb10(0x2a, 0, 0, 1), cdb10(0x41, 0, 0, 1), cdb16(0x8b, 0, 0, 1), cdb10(0x2e, 0, 0, 1)} {
		r.bad(r.a, cdb, make([]byte, 512), 0, DataProtect, scsi.WriteProtected)
	}
	r.bad(r.a, "89 00 00 00 00 00 00 00 00 05 00 00 00 01 00 00", make([]byte, 1024), 0, DataProtect, scsi.WriteProtected)
	r.bad(r.a, "48 02 00 00 00 00 00 00 00 00", nil, 0, DataProtect, scsi.WriteProtected)
	r.good(r.a, cdb10(0x28, 0, 0, 1), nil, 512)
}

// SAM-5 §8: the order of tasks with attributes.
func TestOrder(t *testing.T) {
	var o Order
	tasks := make([]Task, 7)
	enter := func(i int, a Attribute, want bool) {
		t.Helper()
		if got := o.Enter(&tasks[i], a); got != want {
			t.Errorf("task %d may begin: %v, want %v", i, got, want)
		}
	}
	next := func(want int) {
		t.Helper()
		got := o.Next()
		if want < 0 && got != nil || want >= 0 && got != &tasks[want] {
			t.Errorf("next is not task %d", want)
		}
	}
	enter(0, Simple, true)
	enter(1, Ordered, false)
	enter(2, Simple, false)
	enter(3, Untagged, false)
	enter(4, HeadOfQueue, true)
	enter(5, Ordered, false)
	o.Leave(&tasks[0])
	next(-1)
	o.Leave(&tasks[4])
	next(1)
	next(-1)
	if !o.Cancel(&tasks[2]) || o.Cancel(&tasks[2]) || o.Cancel(&tasks[1]) {
		t.Error("Cancel")
	}
	o.Leave(&tasks[1])
	next(3)
	next(-1)
	enter(6, Simple, false)
	o.Leave(&tasks[3])
	next(5)
	o.Leave(&tasks[5])
	next(6)
	o.Leave(&tasks[6])
	next(-1)
	if !o.Idle() {
		t.Error("not idle")
	}
}
