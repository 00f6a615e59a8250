package tpt

import (
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// TestReregister checks that other rights, and one touch, count at once, with the same
// STag.
func TestReregister(t *testing.T) {
	s := newStage(t, Config{})
	stag := s.registerFor(7, s.heap[:8], RemoteRead)
	var m Memo
	for i, c := range []struct{ give, ask, want Rights }{
		{LocalWrite | RemoteWrite, RemoteWrite, 0}, {0, RemoteRead, 1}, {RemoteRead, RemoteRead, 0}, {LocalWrite, LocalWrite, 0},
	} {
		if err := s.Reregister(stag, s.pd, c.give, i == 2); err != nil {
			t.Fatal(err)
		}
		want := []Fault{OK, NoRight}[c.want]
		if _, f := m.Check(s.Table, Access{STag: stag, PD: s.pd, QP: 7, Right: c.ask, Len: 8}); f != want {
			t.Errorf("given %v, asked for %v: %v", c.give, c.ask, f)
		}
		if info, _ := s.Entry(stag.Index()); info.Rights != c.give|LocalRead || info.OneTouch != (i == 2) || info.QP != 7 || info.Length != 8 {
			t.Errorf("%+v", info)
		}
	}
	other := s.domain()
	rig.Says(t, s.Reregister(stag, other, 0, false), ErrPD, stag.String())
	rig.Says(t, s.Reregister(stag^1, s.pd, 0, false), ErrSTag)
	rig.Says(t, s.Reregister(s.window(Type1), s.pd, 0, false), ErrSTag)
	rig.Says(t, s.Reregister(stag, s.pd, RemoteWrite, false), ErrRights, "local write")
	if err := s.Invalidate(stag, s.pd); err != nil {
		t.Fatal(err)
	}
	rig.Says(t, s.Reregister(stag, s.pd, 0, false), ErrSTag, "deregister")
	if err := s.Deregister(stag, s.pd); err != nil {
		t.Error(err)
	}
}
