package tpt

import (
	"errors"
	"math"
	"testing"
)

// reserved returns a reserved entry with mapped memory.
func (s *stage) reserved(qp uint32, mem []byte) STag {
	s.t.Helper()
	stag, err := s.Reserve(s.pd, qp)
	if err != nil {
		s.t.Fatal(err)
	}
	if stag, err = s.Map(stag, s.pd, mem); err != nil {
		s.t.Fatal(err)
	}
	return stag
}

// A reserved entry permits nothing until StartRegister. Then it is a region like any
// other. Each Map gives the next registration another key.
func TestReserve(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		s := newStage(t, c)
		for _, mem := range [][]byte{s.heap[64:128], make([]byte, 64)} {
			first := s.reserved(0, mem)
			a := Access{STag: first, PD: s.pd, QP: 7, Right: RemoteRead, TO: 1000, Len: 10}
			if _, f := s.Check(a); f != BadSTag {
				t.Errorf("a mapped entry: %v", f)
			}
			r := Registration{STag: first, PD: s.pd, QP: 7, Start: 1000, Len: 10, Rights: RemoteRead}
			if f := s.StartRegister(&r); f != OK {
				t.Fatal(f)
			}
			if got, f := s.Check(a); f != OK || &got[0] != &mem[0] || len(got) != 10 {
				t.Errorf("a registered entry: %v, %d octets", f, len(got))
			}
			a.Len = 11
			if _, f := s.Check(a); f != OutOfBounds {
				t.Errorf("mapped octets that are not registered: %v", f)
			}
			if _, err := s.Map(first, s.pd, mem); !errors.Is(err, ErrBound) {
				t.Errorf("memory was mapped to a registered entry: %v", err)
			}
			if err := s.Invalidate(first, s.pd); err != nil {
				t.Fatal(err)
			}
			next, err := s.Map(first, s.pd, mem[:8])
			if err != nil || next.Index() != first.Index() || next == first {
				t.Fatalf("%v after %v: %v", next, first, err)
			}
			if err := s.Deregister(next, s.pd); err != nil {
				t.Fatal(err)
			}
		}
		if used := s.Stats().Used; used != 0 {
			t.Errorf("%d entries in use", used)
		}
	})
}

// Each fault of StartRegister, in the order of the checks. A refused registration changes
// nothing: the right one succeeds after it.
func TestRegistrationRefused(t *testing.T) {
	s := newStage(t, Config{})
	stag := s.reserved(7, s.heap[:64])
	window, err := s.AllocWindow(s.pd, Type1)
	if err != nil {
		t.Fatal(err)
	}
	old := stag
	if stag, err = s.Map(stag, s.pd, s.heap[:64]); err != nil {
		t.Fatal(err)
	}
	empty, err := s.Reserve(s.pd, 0)
	if err != nil {
		t.Fatal(err)
	}
	spent := s.reserved(0, s.heap[:64])
	if f := s.StartRegister(&Registration{STag: spent, PD: s.pd, QP: 7, Len: 64}); f != OK {
		t.Fatal(f)
	}
	if err := s.Invalidate(spent, s.pd); err != nil {
		t.Fatal(err)
	}
	right := Registration{STag: stag, PD: s.pd, QP: 7, Len: 64, Rights: RemoteRead}
	for name, c := range map[string]struct {
		change func(*Registration)
		want   Fault
	}{
		"no entry":            {func(r *Registration) { r.STag = NewSTag(1<<24-1, 0) }, BadSTag},
		"entry 0":             {func(r *Registration) { r.STag = 5 }, BadSTag},
		"the key before":      {func(r *Registration) { r.STag = old }, BadSTag},
		"a window":            {func(r *Registration) { r.STag = window }, BadSTag},
		"another PD":          {func(r *Registration) { r.PD = s.domain() }, WrongPD},
		"another QP":          {func(r *Registration) { r.QP = 8 }, WrongPD},
		"unknown rights":      {func(r *Registration) { r.Rights = 1 << 7 }, NoRight},
		"not writable here":   {func(r *Registration) { r.Rights = RemoteWrite }, NoRight},
		"too long":            {func(r *Registration) { r.Len = 65 }, NoSpace},
		"much too long":       {func(r *Registration) { r.Len = math.MaxUint64 }, NoSpace},
		"no octets":           {func(r *Registration) { r.Len = 0 }, NoSpace},
		"no memory":           {func(r *Registration) { r.STag = empty }, NoSpace},
		"used since Map":      {func(r *Registration) { r.STag = spent }, NoSpace},
		"past the last octet": {func(r *Registration) { r.Start = math.MaxUint64 - 62 }, Wrap},
	} {
		r := right
		c.change(&r)
		before := s.Refusals()[c.want]
		if f := s.StartRegister(&r); f != c.want || s.Refusals()[c.want] != before+1 {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
	}
	if f := s.StartRegister(&right); f != OK {
		t.Fatal(f)
	}
	if f := s.StartRegister(&right); f != Bound {
		t.Errorf("registered twice: %v", f)
	}
}

// Reserve takes entries of the protection domain's share and of the table.
func TestReserveIsLimited(t *testing.T) {
	s := newStage(t, Config{Entries: 4, PerPD: 2})
	if _, err := s.Reserve(s.pd+1, 0); !errors.Is(err, ErrPD) {
		t.Error(err)
	}
	for range 2 {
		if _, err := s.Reserve(s.pd, 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Reserve(s.pd, 0); !errors.Is(err, ErrQuota) {
		t.Error(err)
	}
	other := s.domain()
	if _, err := s.Reserve(other, 0); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(other, 0); !errors.Is(err, ErrTableFull) {
		t.Error(err)
	}
}

func TestMapRefused(t *testing.T) {
	s := newStage(t, Config{})
	stag, err := s.Reserve(s.pd, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stag STag
		pd   PD
		mem  []byte
		want error
	}{
		"no memory":  {stag, s.pd, nil, ErrMemory},
		"no entry":   {stag + 256, s.pd, s.heap[:1], ErrSTag},
		"wrong key":  {stag ^ 1, s.pd, s.heap[:1], ErrSTag},
		"another PD": {stag, s.domain(), s.heap[:1], ErrPD},
	} {
		if _, err := s.Map(c.stag, c.pd, c.mem); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStartRegisterAllocatesNothing(t *testing.T) {
	s := newStage(t, Config{})
	stag := s.reserved(0, s.heap[:64])
	if n := testing.AllocsPerRun(100, func() {
		r := Registration{STag: stag, PD: s.pd, QP: 7, Len: 64, Rights: RemoteRead}
		if f := s.StartRegister(&r); f != OK {
			t.Fatal(f)
		}
		if _, f := s.StartLocalInvalidate(stag, s.pd, 7); f != OK {
			t.Fatal(f)
		}
		stag, _ = s.Map(stag, s.pd, s.heap[:64])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRegisterByRequest maps memory, registers it and invalidates it, as the work
// requests of one queue do.
func BenchmarkRegisterByRequest(b *testing.B) {
	s := newStage(b, Config{})
	stag, err := s.Reserve(s.pd, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if stag, err = s.Map(stag, s.pd, s.heap[:64]); err != nil {
			b.Fatal(err)
		}
		r := Registration{STag: stag, PD: s.pd, QP: 7, Len: 64, Rights: RemoteRead}
		if f := s.StartRegister(&r); f != OK {
			b.Fatal(f)
		}
		if _, f := s.StartLocalInvalidate(stag, s.pd, 7); f != OK {
			b.Fatal(f)
		}
	}
}
