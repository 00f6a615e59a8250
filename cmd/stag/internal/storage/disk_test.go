package storage

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/test/rig"
)

// key is the reservation key of the sessions of TestUnitAttention.
const key = 15

// persist executes PERSISTENT RESERVE OUT, again after a unit attention.
func persist(t *testing.T, s *iscsi.Session, action scsi.PersistOutAction, p scsi.PersistOut) {
	t.Helper()
	cdb := scsi.PersistentReserveOut(action, 0)
	for range attentions {
		_, err := s.Do(rig.Context(t), iscsi.Command{LUN: 1, CDB: cdb[:10], Out: p.Append(nil)})
		if !attention(err) {
			rig.Must(t, err)
			return
		}
	}
	t.Fatal("unit attention after unit attention")
}

// disturbed opens a disk in memory. disturb makes a unit attention wait for its next command.
func disturbed(t *testing.T) (d *disk, ram *backend.RAM, disturb func()) {
	t.Helper()
	ctx := rig.Context(t)
	ram, err := backend.NewRAM(1 << 20)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, ram.Close()) })
	s, err := iscsi.Serve(ctx, iscsi.ServerConfig{Address: "127.0.0.1:0", Targets: []iscsi.TargetConfig{
		{Name: "iqn.2026-01.test.stag:attention", LUNs: map[uint16]iscsi.LUN{1: {Backend: ram}}},
	}})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, s.Close()) })
	url := fmt.Sprintf("iscsi://%v/iqn.2026-01.test.stag:attention/1", s.Addr())
	d, err = openDisk(ctx, url, iscsi.Config{InitiatorName: "iqn.2026-01.test.stag:one"}, 2, iscsi.Write)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, d.close(false)) })
	other, err := iscsi.DialSession(ctx, url, iscsi.Config{InitiatorName: "iqn.2026-01.test.stag:two"})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, other.Close()) })
	return d, ram, func() {
		persist(t, d.Session(), scsi.RegisterAndIgnore, scsi.PersistOut{NewKey: key})
		persist(t, other, scsi.RegisterAndIgnore, scsi.PersistOut{NewKey: key})
		persist(t, other, scsi.Clear, scsi.PersistOut{Key: key})
	}
}

// TestLoadAttention: a measurement goes on behind a unit attention.
func TestLoadAttention(t *testing.T) {
	d, _, disturb := disturbed(t)
	disturb()
	o := LoadOptions{Write: true, Blocks: 8, Depth: 2, Time: 50 * time.Millisecond}
	r := Load{Octets: 4096}
	rig.Must(t, o.measure(rig.Context(t), d, &r))
	if r.Commands == 0 {
		t.Error("no command has succeeded")
	}
}

// TestLoadBusy: a measurement repeats commands that the unit has not taken, and gives up
// when the unit does not take one of them again and again.
func TestLoadBusy(t *testing.T) {
	d, _, _ := disturbed(t)
	o := LoadOptions{Write: true, Blocks: 8, Depth: 2}
	l := o.newLoop(d, 4096)
	l.free = nil
	busy := &iscsi.Completion{ID: 1, Err: &iscsi.StatusError{Status: uint8(scsi.Busy)}}
	for range mostTries {
		rig.Must(t, l.completed(busy, time.Now()))
		if len(l.later) != 1 || len(l.free) != 0 {
			t.Fatalf("%d commands are to leave now, and %d later", len(l.free), len(l.later))
		}
		l.retry = time.Now()
		rig.Must(t, l.wait(rig.Context(t)))
		if len(l.later) != 0 || len(l.free) != 1 || l.free[0].ID != 1 {
			t.Fatalf("%d commands are to leave now, and %d later", len(l.free), len(l.later))
		}
		l.free = nil
	}
	if err := l.completed(busy, time.Now()); !overloaded(err) {
		t.Errorf("after %d tries: %v", mostTries, err)
	}
}

// TestUnitAttention: a copy repeats a write that a unit attention has kept from the medium.
func TestUnitAttention(t *testing.T) {
	ctx := rig.Context(t)
	d, ram, disturb := disturbed(t)
	want := bytes.Repeat([]byte("attention!******"), 32)
	disturb()
	rig.Must(t, d.begin(0, want, 0))
	if err := d.wait(ctx, 0); !attention(err) {
		t.Fatalf("no unit attention: %v", err)
	}
	disturb()
	rig.Must(t, d.begin(1, want, 512))
	rig.Must(t, diskSink{d}.end(ctx, 1))
	got := make([]byte, 1024)
	_, err := ram.ReadAt(got, 0)
	rig.Must(t, err)
	if !bytes.Equal(got[512:], want) || bytes.Equal(got[:512], want) {
		t.Errorf("the disk has %q", got)
	}
}
