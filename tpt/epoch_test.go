package tpt

import (
	"runtime"
	"testing"
)

func TestTickets(t *testing.T) {
	s := newStage(t, Config{})
	a, b := s.Join(), s.Join()
	passed := func(k Ticket, want bool, when string) {
		t.Helper()
		if got := s.Passed(k); got != want {
			t.Errorf("%s: passed %v", when, got)
		}
	}
	passed(0, true, "no ticket")
	passed(s.epochs.ticket(), true, "all quiet")
	passed(Ticket(s.epochs.now.Load()+2), false, "a ticket that nobody has")

	a.Enter()
	k := s.epochs.ticket()
	passed(k, false, "one was inside")
	b.Enter()
	passed(k, false, "another came after")
	a.Leave()
	passed(k, true, "who was inside has left; who came after knows")
	later := s.epochs.ticket()
	passed(later, false, "the other is inside")
	passed(k, true, "the first ticket, again")
	b.Leave()
	b.Enter()
	passed(later, true, "left and came again")
	b.Leave()

	a.Enter()
	k = s.epochs.ticket()
	passed(k, false, "inside")
	a.Close()
	passed(k, true, "closed from inside")
	a.Close()
	b.Close()
	if n := s.Stats().Readers; n != 0 {
		t.Errorf("%d readers", n)
	}
}

func TestNoTableNoReader(t *testing.T) {
	for _, r := range []*Reader{(*Table)(nil).Join(), (*Table)(nil).JoinShared()} {
		r.Enter()
		r.Leave()
		r.Close()
	}
}

// TestSharedReaders checks that any number of shared Readers can be in a step at the
// same time. Each delays its tickets. There are only as many slots as Readers were in a
// step at the same time.
func TestSharedReaders(t *testing.T) {
	const n, inside = 30000, 50
	s := newStage(t, Config{})
	all := make([]*Reader, n)
	for i := range all {
		all[i] = s.JoinShared()
	}
	busy := all[n-inside:]
	for _, r := range busy {
		r.Enter()
	}
	k := s.epochs.ticket()
	for i, r := range busy {
		if s.Passed(k) {
			t.Fatalf("passed with %d Readers inside", inside-i)
		}
		r.Leave()
	}
	if !s.Passed(k) {
		t.Error("not passed when all have left")
	}
	if slots := len(*s.epochs.slots.Load()); slots > max(inside, 2*runtime.GOMAXPROCS(0)) {
		t.Errorf("%d slots for %d Readers inside", slots, inside)
	}
	all[0].Enter()
	k = s.epochs.ticket()
	all[0].Close()
	if !s.Passed(k) {
		t.Error("not passed when the Reader inside is closed")
	}
	for _, r := range all {
		r.Close()
		r.Enter() // has no effect
	}
	if k = s.epochs.ticket(); !s.Passed(k) || s.Stats().Readers != 0 {
		t.Errorf("%d Readers are there, or inside", s.Stats().Readers)
	}
}

// TestSlotsAreReused checks that a new engine uses the slot of a closed one.
func TestSlotsAreReused(t *testing.T) {
	s := newStage(t, Config{})
	for range 1000 {
		a, b := s.Join(), s.Join()
		a.Enter()
		a.Close()
		b.Close()
	}
	if slots := len(*s.epochs.slots.Load()); slots != 2 {
		t.Errorf("%d slots for 2 engines at a time", slots)
	}
}

// TestVerbWaits checks that Invalidate sleeps as long as an engine may use the memory,
// whichever way that ends. Engines that enter later do not delay it.
func TestVerbWaits(t *testing.T) {
	for name, end := range map[string]func(r *Reader){
		"leaves":            (*Reader).Leave,
		"is closed":         (*Reader).Close,
		"leaves and enters": func(r *Reader) { r.Leave(); r.Enter() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, Config{})
			stag := s.register(s.heap[:8], 0, RemoteRead)
			inside, after := s.Join(), s.Join()
			inside.Enter()
			done := make(chan error, 1)
			go func() { done <- s.Invalidate(stag, s.pd) }()
			for s.epochs.waiting.Load() == nil {
				runtime.Gosched()
			}
			if _, f := s.Check(Access{STag: stag, PD: s.pd, Right: RemoteRead, Len: 8}); f != BadSTag {
				t.Errorf("while the verb waits: %v", f)
			}
			after.Enter()
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			end(inside)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyWait checks that all of several waiters wake up.
func TestManyWait(t *testing.T) {
	s := newStage(t, Config{})
	const n = 20
	r := s.Join()
	r.Enter()
	done := make(chan error, n)
	for range n {
		stag := s.register(s.heap[:8], 0, 0)
		go func() { done <- s.Deregister(stag, s.pd) }()
	}
	for range 1000 { // some of them sleep, some still yield
		r.Leave()
		r.Enter()
		runtime.Gosched()
	}
	r.Leave()
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
