package tpt

import "testing"

// TestTouch checks that an entry of one touch counts one use (US 7,299,266 FIG. 18B),
// and that a Memo sees it.
func TestTouch(t *testing.T) {
	s := newStage(t, Config{})
	plain := s.register(s.heap[:8], 0, Bind)
	for name, stag := range map[string]STag{
		"region": once(s),
		"window": s.bind(Binding{STag: s.window(Type1), Region: plain, Len: 8, Rights: RemoteRead, OneTouch: true}),
	} {
		var m Memo
		a := Access{STag: stag, PD: s.pd, Right: RemoteRead, Len: 8}
		sees := func(want bool) {
			t.Helper()
			if _, f := m.Check(s.Table, a); f != OK {
				t.Fatalf("%s: %v", name, f)
			}
			if enabled, touched := m.OneTouch(); !enabled || touched != want {
				t.Errorf("%s: enabled %v, touched %v", name, enabled, touched)
			}
		}
		sees(false)
		if !s.Touch(stag, 77) {
			t.Errorf("%s: not touched", name)
		}
		sees(true)
		if info, _ := s.Entry(stag.Index()); !info.OneTouch || !info.Touched || info.Sequence != 77 {
			t.Errorf("%s: %+v", name, info)
		}
		if s.Touch(stag, 78) {
			t.Errorf("%s: touched twice", name)
		}
		if k, ok := s.Spend(stag); !ok || !s.Passed(k) {
			t.Errorf("%s: spent %v", name, ok)
		}
		if _, ok := s.Spend(stag); ok || s.Touch(stag, 79) {
			t.Errorf("%s: spent twice", name)
		}
		if _, f := m.Check(s.Table, a); f != BadSTag {
			t.Errorf("%s, spent: %v", name, f)
		}
	}
	if s.Touch(plain, 1) || s.Touch(0, 1) {
		t.Error("touched an entry that is not of one touch")
	}
	if info, _ := s.Entry(plain.Index()); info.Windows != 0 || info.Touched {
		t.Errorf("%+v", info)
	}
}

// once registers a region of one touch.
func once(s *stage) STag {
	stag, err := s.Register(Region{PD: s.pd, Memory: s.heap[:8], Rights: RemoteRead, OneTouch: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return stag
}
