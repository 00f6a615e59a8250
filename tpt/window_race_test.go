package tpt

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// unbinds are the ways to take a window's memory back from peers.
var unbinds = map[string]func(s *stage, w STag) (STag, Ticket){
	"unbind": func(s *stage, w STag) (STag, Ticket) {
		w = NewSTag(w.Index(), w.Key()+1)
		k, _ := s.Bind(&Binding{STag: w, PD: s.pd})
		return w, k
	},
	"local invalidate": func(s *stage, w STag) (STag, Ticket) {
		k, _ := s.StartLocalInvalidate(w, s.pd, 1)
		return w, k
	},
	"peer's invalidate": func(s *stage, w STag) (STag, Ticket) {
		k, _ := s.StartInvalidate(w, s.pd, 1)
		return w, k
	},
}

// TestNothingIsPlacedAfterUnbind lets two engines write through a window while a third
// goroutine binds the window, takes the binding back and deregisters the region. After
// the ticket has passed this goroutine writes the memory without synchronization, and
// must find it unchanged. The race detector checks the same.
func TestNothingIsPlacedAfterUnbind(t *testing.T) {
	for name, unbind := range unbinds {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, Config{Entries: 64})
			for _, mem := range [][]byte{s.heap[:2*half], make([]byte, 2*half)} {
				unbindUnderFire(t, s, mem, unbind)
			}
		})
	}
}

func unbindUnderFire(t *testing.T, s *stage, mem []byte, unbind func(*stage, STag) (STag, Ticket)) {
	var stag atomic.Uint32
	var stop atomic.Bool
	var running sync.WaitGroup
	engines := []*placer{{stage: s, stag: &stag, join: (*Table).Join}, {stage: s, stag: &stag, at: half, join: (*Table).JoinShared}}
	for i, p := range engines {
		running.Go(func() { p.run(&stop, byte(i+1)) })
	}
	defer running.Wait()
	defer stop.Store(true)
	w := s.window(Type1)
	for round := range revokeRounds() {
		region := s.register(mem, 0, LocalWrite|Bind)
		now := NewSTag(w.Index(), w.Key()+1)
		_, f := s.Bind(&Binding{
			STag: now, Region: region, PD: s.pd, Len: 2 * half, Rights: RemoteWrite | RemoteInvalidate, ZeroBased: true,
		})
		if f != OK {
			t.Fatal(f)
		}
		stag.Store(uint32(now))
		for _, p := range engines { // each engine has written at least once
			for before := p.placed.Load(); p.placed.Load() == before; {
				runtime.Gosched()
			}
		}
		next, k := unbind(s, now)
		if w = next; round&1 == 0 { // the verb waits; without it the ticket says when the memory is free
			if err := s.Deregister(region, s.pd); err != nil {
				t.Fatal(err)
			}
		}
		for !s.Passed(k) {
			runtime.Gosched()
		}
		for i := range mem {
			mem[i] = 0xee
		}
		runtime.Gosched()
		for i := range mem {
			if mem[i] != 0xee {
				t.Fatalf("round %d: octet %d is %#x after the window was unbound", round, i, mem[i])
			}
		}
		if round&1 != 0 {
			if err := s.Deregister(region, s.pd); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Deregister(w, s.pd); err != nil {
		t.Fatal(err)
	}
}

// TestBindersAgainstEachOther lets goroutines bind, unbind and invalidate few
// windows of few regions. In the end each region counts exactly its valid windows, so that
// it can be deregistered when they are gone.
func TestBindersAgainstEachOther(t *testing.T) {
	const rounds, binders = 20000, 4
	s := newStage(t, Config{Entries: 64})
	var regions, windows [3]STag
	var keys [3]atomic.Uint32 // the present STags of the windows
	for i := range regions {
		regions[i], windows[i] = s.register(s.heap[:64], 0, LocalWrite|Bind), s.window(Type1)
		keys[i].Store(uint32(windows[i]))
	}
	var binding sync.WaitGroup
	var bound atomic.Uint64
	for g := range binders {
		binding.Go(func() {
			r := s.Join()
			defer r.Close()
			for i := range rounds {
				r.Enter()
				w, region := &keys[(i+g)%3], regions[(i/3+g)%3]
				next := STag(w.Load())
				next = NewSTag(next.Index(), next.Key()+1)
				b := Binding{STag: next, Region: region, PD: s.pd, Len: 64 * uint64(min(i%4, 1)), Rights: RemoteWrite}
				if _, f := s.Bind(&b); f == OK {
					w.Store(uint32(next)) // perhaps another goroutine has bound the window since
					bound.Add(1)
				}
				if i%7 == 0 {
					_, _ = s.StartLocalInvalidate(STag(w.Load()), s.pd, 1)
				}
				r.Leave()
			}
		})
	}
	binding.Wait()
	if bound.Load() < rounds {
		t.Errorf("only %d binds", bound.Load())
	}
	for i, region := range regions {
		n := uint32(0)
		for j := range keys {
			if info, ok := s.Entry(STag(keys[j].Load()).Index()); ok && info.Parent == region.Index() {
				n++
			}
		}
		if info, _ := s.Entry(region.Index()); info.Windows != n {
			t.Errorf("region %d counts %d windows, and has %d", i, info.Windows, n)
		}
	}
	for i := range keys {
		if err := s.DeallocWindow(STag(keys[i].Load()), s.pd); err != nil {
			t.Error(err)
		}
	}
	for _, region := range regions {
		if err := s.Deregister(region, s.pd); err != nil {
			t.Error(err)
		}
	}
}
