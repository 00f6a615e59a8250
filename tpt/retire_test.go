package tpt

import (
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// TestStartDeregister follows entries that an engine deregisters. As long as another
// engine may use them, their memory is kept, and they are not used again. All entries of
// a step share one epoch.
func TestStartDeregister(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		s := newStage(t, c)
		own, other := s.Join(), s.Join()
		var stags []STag
		for range 63 {
			stags = append(stags, s.register(make([]byte, 8), 0, RemoteRead))
		}
		other.Enter()
		own.Enter()
		before := s.epochs.now.Load()
		var last Ticket
		for _, stag := range stags {
			k, f := s.StartDeregister(stag, s.pd, 1)
			if f != OK {
				t.Fatalf("%v: %v", stag, f)
			}
			last = k
			if _, f := s.asks(stag, 1, RemoteRead, 0, 1); f != BadSTag {
				t.Errorf("%v, deregistered: %v", stag, f)
			}
			if _, f := s.StartDeregister(stag, s.pd, 1); f != BadSTag {
				t.Errorf("%v, again: %v", stag, f)
			}
		}
		own.Leave()
		if n := s.epochs.now.Load() - before; n != 1 {
			t.Errorf("%d epochs for one step", n)
		}
		own.Enter()
		own.Leave()
		if s.Passed(last) || s.Stats().Used != 63 {
			t.Errorf("an engine is inside, and %d entries are used", s.Stats().Used)
		}
		for _, stag := range stags {
			if first, _ := s.external.at(stag.Index()); first == nil {
				t.Fatal("an engine is inside, and the memory is not kept")
			}
		}
		other.Leave() // the last one to leave frees them
		if !s.Passed(last) || s.Stats().Used != 0 {
			t.Errorf("%d entries are used", s.Stats().Used)
		}
		for _, stag := range stags {
			if first, _ := s.external.at(stag.Index()); first != nil {
				t.Fatal("the memory is kept")
			}
		}
		if err := s.FreePD(s.pd); err != nil {
			t.Error(err)
		}
	})
}

// TestStartDeregisterRefuses checks who may deregister.
func TestStartDeregisterRefuses(t *testing.T) {
	s := newStage(t, Config{})
	other := s.domain()
	region := s.register(s.heap[:8], 0, Bind)
	w := s.bind(Binding{STag: s.window(Type2A), Region: region, QP: 7, Len: 8, Rights: RemoteRead})
	for name, c := range map[string]struct {
		stag STag
		pd   PD
		qp   uint32
		want Fault
	}{
		"windows": {region, s.pd, 1, Bound}, "domain": {region, other, 1, WrongPD}, "another's": {w, s.pd, 8, WrongPD}, "key": {w ^ 1, s.pd, 7, BadSTag},
	} {
		if k, f := s.StartDeregister(c.stag, c.pd, c.qp); f != c.want || k != 0 {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
	}
	for _, stag := range []STag{w, region} { // a bound window is unbound
		if _, f := s.StartDeregister(stag, s.pd, 7); f != OK {
			t.Errorf("%v: %v", stag, f)
		}
	}
	r := s.Join()
	r.Enter()
	r.Leave()
	if used := s.Stats().Used; used != 0 {
		t.Errorf("%d entries are used", used)
	}
}

// TestVerbsAwaitEngines checks that verbs wait for entries that an engine has
// deregistered, instead of failing.
func TestVerbsAwaitEngines(t *testing.T) {
	for name, verb := range map[string]func(s *stage) error{
		"register": func(s *stage) error {
			_, err := s.Register(Region{PD: s.pd, Memory: s.heap})
			return err
		},
		"free domain": func(s *stage) error { return s.FreePD(s.pd) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, Config{Entries: 2})
			r := s.Join()
			stag := s.register(s.heap[:8], 0, 0)
			r.Enter()
			if _, f := s.StartDeregister(stag, s.pd, 1); f != OK {
				t.Fatal(f)
			}
			done := make(chan error, 1)
			go func() { done <- verb(s) }()
			for s.epochs.waiting.Load() == nil {
				runtime.Gosched()
			}
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			r.Leave()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	s := newStage(t, Config{Entries: 2})
	s.register(s.heap[:8], 0, 0)
	_, err := s.Register(Region{PD: s.pd, Memory: s.heap})
	rig.Says(t, err, ErrTableFull) // at once: no engine has deregistered
}

// TestDamagedChain checks that a chain with an impossible index, which only another
// process can write, costs entries but no more.
func TestDamagedChain(t *testing.T) {
	s := newStage(t, Config{Entries: 64})
	stags := s.uses(63)
	s.Stats() // takes the freed entries
	s.slots.size = 100
	s.slots.ring, s.slots.count = make([]batch, 64), 0
	s.slots.free = 0
	for _, stag := range stags {
		s.slots.give(stag.Index())
	}
	s.entries[stags[10].Index()].parent.Store(1 << 30)
	n := 0
	for ; ; n++ {
		if _, err := s.Register(Region{PD: s.pd, Memory: s.heap}); err != nil {
			rig.Says(t, err, ErrTableFull)
			break
		}
	}
	if n != 11 {
		t.Errorf("%d entries were found, want the 11 up to the damage", n)
	}
}
