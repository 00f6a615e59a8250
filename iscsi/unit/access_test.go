package unit

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// twoGroups is a unit with two target port groups.
func twoGroups(c *Config) {
	c.PortGroup, c.Groups, c.ExplicitAccess = 1, []PortGroup{{Tag: 1}, {Tag: 2, State: scsi.NonOptimized, Preferred: true}}, true
}

// SPC-4 §6.37: all groups, with their states.
func TestReportTargetPortGroups(t *testing.T) {
	r := newRig(t)
	const cdb = "a3 0a 00 00 00 00 00 00 00 ff 00 00"
	if b := r.good(r.a, cdb, nil, 255); !bytes.Equal(b, octets(t, "0000000c 00 8f 0001 00 00 00 01 0000 0001")) {
		t.Errorf("% x", b)
	}
	if b := r.good(r.a, "a3 2a 00 00 00 00 00 00 00 ff 00 00", nil, 255); len(b) != 20 || b[4] != 0x10 {
		t.Errorf("extended: % x", b)
	}
	r = newRig(t, twoGroups)
	if b := r.good(r.a, cdb, nil, 255); !bytes.Equal(b, octets(t, "00000018 00 8f 0001 00 00 00 01 0000 0001 81 8f 0002 00 00 00 01 0000 0002")) {
		t.Errorf("two groups: % x", b)
	}
	if err := r.unit.SetAccess(2, scsi.Unavailable); err != nil {
		t.Fatal(err)
	}
	r.bad(r.a, cdb, nil, 255, UnitAttention, scsi.AsymmetricAccessChanged)
	if b := r.good(r.a, cdb, nil, 255); !bytes.Equal(b[16:22], octets(t, "83 8f 0002 00 02")) {
		t.Errorf("changed: % x", b)
	}
}

// SPC-4 §5.15.2.4: what works through a target port in each state.
func TestAccessStates(t *testing.T) {
	const (
		ready     = "00 00 00 00 00 00"
		sense     = "1a 08 3f 00 ff 00"
		inquiry   = "12 00 00 00 60 00"
		readBlock = "28 00 00 00 00 00 00 00 01 00"
		keys      = "5e 00 00 00 00 00 00 00 ff 00"
	)
	for _, c := range []struct {
		state scsi.AccessState
		code  scsi.Code
		works []string
		fails []string
	}{
		{scsi.Optimized, 0, []string{ready, sense, inquiry, readBlock, keys}, nil},
		{scsi.NonOptimized, 0, []string{ready, sense, inquiry, readBlock, keys}, nil},
		{scsi.Standby, scsi.TargetPortStandby, []string{sense, inquiry, keys}, []string{ready, readBlock}},
		{scsi.Unavailable, scsi.TargetPortUnavailable, []string{inquiry}, []string{ready, readBlock, sense, keys}},
		{scsi.Transition, scsi.AsymmetricTransition, []string{inquiry}, []string{ready, readBlock, sense, keys}},
	} {
		r := newRig(t, twoGroups)
		n := r.unit.AttachAt(2, "iqn.c", nil)
		if err := r.unit.SetAccess(2, c.state); err != nil {
			t.Fatal(err)
		}
		if c.state != scsi.NonOptimized { // the state that the group has had
			for _, x := range []*Nexus{n, r.a, r.b} {
				r.bad(x, ready, nil, 0, UnitAttention, scsi.AsymmetricAccessChanged)
			}
		}
		for _, cdb := range c.works {
			r.good(n, cdb, nil, 512)
		}
		for _, cdb := range c.fails {
			r.bad(n, cdb, nil, 512, NotReady, c.code)
			r.good(r.a, cdb, nil, 512) // through the other group
		}
		task := &Task{Nexus: n, EDTL: 512}
		copy(task.CDB[:], octets(t, readBlock))
		if open := n.Open(task); open != (len(c.fails) == 0) {
			t.Errorf("%v: Open says %v", c.state, open)
		}
	}
}

// SPC-4 §6.45: an initiator changes states: all of the list or none.
func TestSetTargetPortGroups(t *testing.T) {
	r := newRig(t, twoGroups)
	const cdb = "a4 0a 00 00 00 00 00 00 00 0c 00 00"
	r.bad(r.a, cdb, octets(t, "00000000 02000001 00000009"), 0, IllegalRequest, scsi.InvalidFieldInParameterList)
	r.bad(r.a, cdb, octets(t, "00000000 02000001 0f000002"), 0, IllegalRequest, scsi.InvalidFieldInParameterList)
	r.good(r.a, "00 00 00 00 00 00", nil, 0)
	r.good(r.a, cdb, octets(t, "00000000 02000001 00000002"), 0)
	r.bad(r.b, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.AsymmetricAccessChanged)
	r.bad(r.a, "00 00 00 00 00 00", nil, 0, NotReady, scsi.TargetPortStandby)
	r = newRig(t)
	r.bad(r.a, cdb, octets(t, "00000000 02000001 00000002"), 0, IllegalRequest, scsi.InvalidOperationCode)
}

// A port's designators in page 83h are those of the port that was asked.
func TestIdentificationByPort(t *testing.T) {
	r := newRig(t, twoGroups)
	page := func(n *Nexus) []scsi.Designator {
		all, err := scsi.ParseIdentification(r.good(n, "12 01 83 00 ff 00", nil, 255))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	one, two := page(r.a), page(r.unit.AttachAt(2, "iqn.c", nil))
	for i := range one {
		same := bytes.Equal(one[i].Value, two[i].Value)
		if same == (one[i].Association == scsi.OfPort) {
			t.Errorf("designator %d: %v and %v", i, one[i], two[i])
		}
	}
}

// New refuses groups that cannot be.
func TestGroupConfig(t *testing.T) {
	for _, groups := range [][]PortGroup{{{Tag: 2}}, {{Tag: 1}, {Tag: 1}}, {{Tag: 1}, {}}, {{Tag: 1, State: 9}}} {
		if _, err := New(Config{Backend: newRAM(1024), Groups: groups}); err == nil {
			t.Errorf("%+v: no error", groups)
		}
	}
}
