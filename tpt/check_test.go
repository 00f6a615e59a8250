package tpt

import (
	"math"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// TestFirstFailureDecides makes each part of an access wrong alone, and each two parts
// together.
func TestFirstFailureDecides(t *testing.T) {
	wrongs := []struct {
		name string
		do   func(s *stage, a *Access)
		want Fault
	}{
		{"index 0", func(_ *stage, a *Access) { a.STag = NewSTag(0, a.STag.Key()) }, BadSTag},
		{"index of no entry", func(_ *stage, a *Access) { a.STag = NewSTag(1<<24-1, a.STag.Key()) }, BadSTag},
		{"index of a free entry", func(_ *stage, a *Access) { a.STag = NewSTag(a.STag.Index()^1, a.STag.Key()) }, BadSTag},
		{"key", func(_ *stage, a *Access) { a.STag ^= 1 }, BadSTag},
		{"not valid", func(s *stage, a *Access) { revise(s, a, func(w word) word { return w &^ wordValid }) }, BadSTag},
		{"being written", func(s *stage, a *Access) { revise(s, a, func(w word) word { return w&^wordValid | wordBusy }) }, BadSTag},
		{"type", func(s *stage, a *Access) {
			revise(s, a, func(w word) word { return w&^(0xf<<wordKind) | word(KindISCSI)<<wordKind })
		}, BadSTag},
		{"protection domain", func(_ *stage, a *Access) { a.PD++ }, WrongPD},
		{"right", func(_ *stage, a *Access) { a.Right = RemoteWrite }, NoRight},
		{"wrap", func(_ *stage, a *Access) { a.TO = math.MaxUint64 - 2 }, Wrap},
		{"bounds", func(_ *stage, a *Access) { a.TO += 100 }, OutOfBounds},
	}
	for i, first := range wrongs {
		for _, second := range wrongs[i:] {
			if first.want == BadSTag && second.want == BadSTag && first.name != second.name {
				continue // both parts give the same fault
			}
			s := newStage(t, Config{Entries: 8})
			a := Access{STag: s.register(s.heap[:100], 1000, RemoteRead), PD: s.pd, Right: RemoteRead, TO: 1000, Len: 100}
			if mem, f := s.Check(a); f != OK || len(mem) != 100 {
				t.Fatalf("nothing wrong: %v", f)
			}
			second.do(s, &a)
			if first.name != second.name {
				first.do(s, &a)
			}
			mem, f := s.Check(a)
			if f != first.want || mem != nil {
				t.Errorf("%s and %s: %v with %d octets, want %v", first.name, second.name, f, len(mem), first.want)
			}
			var want [Faults]uint64
			want[first.want] = 1
			if got := s.Refusals(); got != want {
				t.Errorf("%s and %s: counted %v", first.name, second.name, got)
			}
		}
	}
}

// revise changes the state of the entry that a names.
func revise(s *stage, a *Access, f func(word) word) {
	if e, ok := s.at(a.STag); ok {
		e.publish(f(e.load()))
	}
}

func TestBounds(t *testing.T) {
	const n = 256
	const top = math.MaxUint64
	for _, c := range []struct {
		name      string
		start, to uint64
		len       uint32
		want      Fault
	}{
		{"all", 0, 0, n, OK},
		{"one more", 0, 0, n + 1, OutOfBounds},
		{"the last", 0, n - 1, 1, OK},
		{"just behind", 0, n, 1, OutOfBounds},
		{"half outside", 0, n - 1, 2, OutOfBounds},
		{"the most", 0, 0, math.MaxUint32, OutOfBounds},
		{"the most from the last", 0, n - 1, math.MaxUint32, OutOfBounds},
		{"just before", 1000, 999, 1, OutOfBounds},
		{"from before on", 1000, 999, n, OutOfBounds},
		{"all, not from zero", 1000, 1000, n, OK},
		{"zero, not from zero", 1000, 0, 1, OutOfBounds},
		{"negative as signed", 1 << 63, 1<<63 + n - 1, 1, OK},
		{"across the sign", 1<<63 - 1, 1<<63 - 1, n, OK},
		{"all at the top", top - n + 1, top - n + 1, n, OK},
		{"the very last", top - n + 1, top, 1, OK},
		{"around the top", top - n + 1, top, 2, Wrap},
		{"all and around", top - n + 1, top - n + 1, n + 1, Wrap},
		{"the most and around", 0, top, math.MaxUint32, Wrap},
		{"the most before the top", 0, top - math.MaxUint32 + 1, math.MaxUint32, OutOfBounds},
		{"one more than that", 0, top - math.MaxUint32 + 2, math.MaxUint32, Wrap},
		{"zero, at the top", top - n + 1, 0, 1, OutOfBounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, Config{Entries: 8})
			for space, mem := range map[string][]byte{"heap": s.heap[4096 : 4096+n], "external": make([]byte, n)} {
				stag := s.register(mem, c.start, RemoteRead)
				got, f := s.Check(Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: c.to, Len: c.len})
				if f != c.want {
					t.Fatalf("%s: %v, want %v", space, f, c.want)
				}
				if f != OK {
					continue
				}
				if len(got) != int(c.len) || cap(got) != len(got) || &got[0] != &mem[c.to-c.start] {
					t.Errorf("%s: %d octets, capacity %d, from elsewhere or of another length", space, len(got), cap(got))
				}
			}
		})
	}
}

// TestNothingChecksNothing checks that an access of no octets is allowed (RFC 5041 §7).
func TestNothingChecksNothing(t *testing.T) {
	s := newStage(t, Config{})
	for _, a := range []Access{{}, {STag: 0xffffffff, PD: 77, Right: RemoteWrite, TO: math.MaxUint64}} {
		if mem, f := s.Check(a); f != OK || mem != nil {
			t.Errorf("%+v: %v, %d octets", a, f, len(mem))
		}
	}
}

func TestRights(t *testing.T) {
	s := newStage(t, Config{})
	single := []Rights{LocalRead, LocalWrite, RemoteRead, RemoteWrite, RemoteAtomic, Bind}
	for given := Rights(0); given <= allRights; given++ {
		stag, err := s.Register(Region{PD: s.pd, Memory: s.heap[:8], Rights: given})
		if given&(RemoteWrite|RemoteAtomic) != 0 && given&LocalWrite == 0 {
			rig.Says(t, err, ErrRights, "local write")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range single {
			want := NoRight
			if (given|LocalRead)&r != 0 {
				want = OK
			}
			if _, f := s.Check(Access{STag: stag, PD: s.pd, Right: r, Len: 8}); f != want {
				t.Errorf("given %v, asked for %v: %v", given, r, f)
			}
		}
		if _, f := s.Check(Access{STag: stag, PD: s.pd, Len: 8}); f != NoRight {
			t.Errorf("given %v, asked for none: %v", given, f)
		}
		if _, f := s.Check(Access{STag: stag, PD: s.pd, Right: LocalRead | Bind | LocalWrite, Len: 8}); (f == OK) != (given&LocalWrite != 0 && given&Bind != 0) {
			t.Errorf("given %v, asked for three: %v", given, f)
		}
	}
}

// TestBoundToQueuePair checks that an entry bound to a queue pair is for that queue
// pair only. This is true for all kinds of entries, and for peers and work requests
// (RFC 5041 §8.2).
func TestBoundToQueuePair(t *testing.T) {
	s := newStage(t, Config{})
	stag := s.registerFor(7, s.heap[:64], LocalWrite|RemoteWrite|RemoteRead)
	if info, ok := s.Entry(stag.Index()); !ok || info.QP != 7 {
		t.Errorf("%+v", info)
	}
	for _, right := range []Rights{LocalRead, LocalWrite, RemoteRead, RemoteWrite} {
		for qp, want := range map[uint32]Fault{7: OK, 8: WrongPD, 0: WrongPD} {
			if _, f := s.Check(Access{STag: stag, PD: s.pd, QP: qp, Right: right, Len: 64}); f != want {
				t.Errorf("%v by queue pair %d: %v, want %v", right, qp, f, want)
			}
		}
	}
	if _, f := s.Check(Access{STag: stag, PD: s.domain(), QP: 7, Right: RemoteRead, Len: 64}); f != WrongPD {
		t.Errorf("the same number in another protection domain: %v", f)
	}
}

// TestUnreachable checks that an entry that this process cannot translate is refused,
// and that no memory is accessed.
func TestUnreachable(t *testing.T) {
	for name, spoil := range map[string]func(e *entry){
		"past the pages":    func(e *entry) { e.translation.Store(translationFirst); e.base.Store(defaultEntries) },
		"past the leaves":   func(e *entry) { e.translation.Store(translationSecond); e.base.Store(defaultEntries) },
		"most pages":        func(e *entry) { e.translation.Store(translationSecond); e.base.Store(math.MaxUint64) },
		"another space":     func(e *entry) { e.base.Store(2 << spaceShift) },
		"past the heap":     func(e *entry) { e.base.Store(heapLen - 63) },
		"longer than it is": func(e *entry) { e.length.Store(heapLen + 1) },
		"not ours":          func(e *entry) { e.base.Store(spaceExternal << spaceShift) },
		"space of 16 bits":  func(e *entry) { e.base.Store(e.base.Load() | 1<<63) },
	} {
		s := newStage(t, Config{})
		stag := s.register(s.heap[:64], 0, RemoteRead)
		e, _ := s.at(stag)
		spoil(e)
		if mem, f := s.Check(Access{STag: stag, PD: s.pd, Right: RemoteRead, Len: 64}); f != BadSTag || mem != nil {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	s := newStage(t, Config{})
	r := s.Join()
	good := Access{STag: s.register(make([]byte, 4096), 1<<40, LocalWrite|RemoteWrite), PD: s.pd, Right: RemoteWrite, TO: 1 << 40, Len: 4096}
	bad := good
	bad.STag ^= 1
	if n := testing.AllocsPerRun(1000, func() {
		r.Enter()
		_, _ = s.Check(good)
		_, _ = s.Check(bad)
		k, _ := s.StartInvalidate(bad.STag, s.pd, 0)
		_ = s.Passed(k)
		r.Leave()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
