package iscsi_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

var twoNames = []string{"iqn.2026-01.test.stag:a", "iqn.2026-01.test.stag:b"}

// twoInitiators makes two sessions to one disk of our target.
func twoInitiators(t *testing.T) (s rig.Stage, a, b *iscsi.Disk) {
	s = rig.On(t)
	server := serveOn(t, ram(t, 1<<20), nil)
	var d [2]*iscsi.Disk
	for i, name := range twoNames {
		var err error
		d[i], err = iscsi.Dial(s.Ctx(), url(server, "", ""), iscsi.Config{InitiatorName: name})
		s.Must(err)
		t.Cleanup(func() { s.Check(d[i].Close()) })
	}
	return s, d[0], d[1]
}

// TestReservations: what one initiator reserves, another one may not write. The target is ours,
// and tgtd.
func TestReservations(t *testing.T) {
	t.Run("stag", func(t *testing.T) { reservations(twoInitiators(t)) })
	t.Run("tgtd", func(t *testing.T) {
		s := newStage(t, "kernel port", tgtd.Config{})
		reservations(s.Stage, s.dial("", iscsi.Config{InitiatorName: twoNames[0]}), s.dial("", iscsi.Config{InitiatorName: twoNames[1]}))
	})
}

func reservations(s rig.Stage, a, b *iscsi.Disk) {
	block := make([]byte, a.BlockSize())
	s.Must(a.Register(1, false))
	s.Must(b.Register(2, false))
	s.Must(a.Reserve(1, iscsi.WriteExclusive))
	r, err := b.Reservations()
	s.Must(err)
	if slices.Sort(r.Keys); !slices.Equal(r.Keys, []uint64{1, 2}) || !r.Held || r.Key != 1 || r.Type != iscsi.WriteExclusive {
		s.Errorf("%+v", r)
	}
	if _, err := b.WriteAt(block, 0); !errors.Is(err, iscsi.ErrReservation) {
		s.Errorf("a write of another initiator: %v", err)
	}
	if err := b.Reserve(2, iscsi.WriteExclusive); !errors.Is(err, iscsi.ErrReservation) {
		s.Errorf("a second reservation: %v", err)
	}
	if err := a.Release(7, iscsi.WriteExclusive); !errors.Is(err, iscsi.ErrReservation) {
		s.Errorf("another key: %v", err)
	}
	s.Must(b.Preempt(2, 1, iscsi.WriteExclusiveRegistrants, false))
	_, err = b.WriteAt(block, 0)
	s.Must(err)
	if _, err := a.WriteAt(block, 0); !errors.Is(err, iscsi.ErrReservation) {
		s.Errorf("a write of the old holder: %v", err)
	}
	s.Must(b.Release(2, iscsi.WriteExclusiveRegistrants))
	s.Must(a.Register(3, false))
	s.Must(a.ClearReservations(3))
	if r, err := a.Reservations(); err != nil || len(r.Keys) != 0 || r.Held {
		s.Errorf("%+v, %v", r, err)
	}
}

// TestCompareAndWrite: blocks are written only if the disk has the others.
func TestCompareAndWrite(t *testing.T) {
	s, a, b := twoInitiators(t)
	n := a.BlockSize()
	one, two, got := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, n), make([]byte, n)
	_, err := a.WriteAt(one, int64(n))
	s.Must(err)
	s.Must(b.CompareAndWrite(one, two, int64(n)))
	one[n-1] = 3
	var differs *iscsi.MiscompareError
	if err := a.CompareAndWrite(one, one, int64(n)); !errors.As(err, &differs) || differs.At > 0 {
		s.Errorf("other octets: %v", err)
	}
	two[n-3] = 9
	if err := a.CompareAndWrite(two, one, int64(n)); !errors.As(err, &differs) || differs.At != int64(n-3) && differs.At != -1 {
		s.Errorf("another octet: %v", err)
	}
	if _, err := a.ReadAt(got, int64(n)); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{2}, n)) {
		s.Errorf("the disk has % x, %v", got[:4], err)
	}
	if err := a.CompareAndWrite(one, two[1:], 0); err == nil {
		s.Error("slices of two lengths")
	}
	many := make([]byte, 256*n)
	if err := a.CompareAndWrite(many, many, 0); err == nil {
		s.Error("more blocks than a command can say")
	}
}

// TestWriteSame: all blocks of an extent get the octets of one.
func TestWriteSame(t *testing.T) {
	s, a, b := twoInitiators(t)
	n := a.BlockSize()
	block, got := random(n, 5), make([]byte, 5*n)
	s.Must(a.WriteSame(block, int64(n), int64(3*n)))
	if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, slices.Concat(make([]byte, n), block, block, block, make([]byte, n))) {
		s.Errorf("other octets, or %v", err)
	}
	if err := a.WriteSame(block[1:], 0, int64(n)); err == nil {
		s.Error("a block that is too short")
	}
}
