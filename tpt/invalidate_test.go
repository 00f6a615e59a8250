package tpt

import (
	"testing"
)

// TestInvalidateWindow checks who may invalidate a window. The window is unbound then.
func TestInvalidateWindow(t *testing.T) {
	s := newStage(t, Config{})
	region := s.register(s.heap[:64], 0, Bind)
	bound := func(k WindowType, r Rights) STag {
		return s.bind(Binding{STag: s.window(k), Region: region, QP: 7, Len: 8, Rights: r})
	}
	for name, c := range map[string]struct {
		stag       STag
		qp         uint32
		peer, self Fault
	}{
		"type 1":            {bound(Type1, RemoteRead), 7, NoRight, OK},
		"type 1, right":     {bound(Type1, RemoteRead|RemoteInvalidate), 8, OK, OK},
		"type 2":            {bound(Type2A, RemoteRead), 7, OK, OK},
		"type 2, no access": {bound(Type2B, 0), 7, NoRight, OK},
		"type 2, another's": {bound(Type2B, RemoteRead|RemoteInvalidate), 8, WrongPD, WrongPD},
	} {
		windows := func() uint32 { info, _ := s.Entry(region.Index()); return info.Windows }
		before := windows()
		if _, f := s.StartInvalidate(c.stag, s.pd, c.qp); f != c.peer {
			t.Errorf("%s, a peer: %v, want %v", name, f, c.peer)
		}
		if _, f := s.StartLocalInvalidate(c.stag, s.pd, c.qp); f != c.self {
			t.Errorf("%s: %v, want %v", name, f, c.self)
		}
		if _, f := s.StartLocalInvalidate(c.stag, s.pd, c.qp); f != c.self { // a second call is no fault
			t.Errorf("%s, again: %v, want %v", name, f, c.self)
		}
		want := before
		if c.self == OK {
			want--
			c.stag = s.bind(Binding{STag: c.stag, Region: region, QP: 9, Len: 8}) // by any queue pair
			want++
		}
		if n := windows(); n != want {
			t.Errorf("%s: %d windows, want %d", name, n, want)
		}
	}
	lost := bound(Type1, RemoteRead)
	s.Fail(lost)
	s.Fail(lost)
	if _, f := s.asks(lost, 7, RemoteRead, 0, 1); f != BadSTag {
		t.Errorf("its memory is gone: %v", f)
	}
}

// TestLocalInvalidate checks that the owner needs no right to invalidate a region.
func TestLocalInvalidate(t *testing.T) {
	s := newStage(t, Config{})
	other := s.domain()
	stag := s.register(s.heap[:8], 0, 0)
	for name, c := range map[string]struct {
		stag STag
		pd   PD
		qp   uint32
		want Fault
	}{
		"key": {stag ^ 1, s.pd, 1, BadSTag}, "domain": {stag, other, 1, WrongPD},
		"another's": {s.registerFor(2, s.heap[:8], 0), s.pd, 1, WrongPD},
	} {
		if k, f := s.StartLocalInvalidate(c.stag, c.pd, c.qp); f != c.want || k != 0 {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
	}
	if k, f := s.StartLocalInvalidate(stag, s.pd, 1); f != OK || !s.Passed(k) {
		t.Errorf("the owner: %v", f)
	}
	if _, f := s.asks(stag, 1, LocalRead, 0, 1); f != BadSTag {
		t.Errorf("invalid: %v", f)
	}
}
