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
	passed(Ticket(s.epochs.now.Load()+1), false, "a ticket that nobody has")

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
	r := (*Table)(nil).Join()
	r.Enter()
	r.Leave()
	r.Close()
}

// TestVerbWaits: Invalidate sleeps as long as an engine could be using the
// memory, whichever way that ends, and is not held up by engines that came
// after.
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

// TestManyWait: whoever waits is woken, and not lost when several do.
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
	for range 1000 { // some of them lie down, some look still
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
