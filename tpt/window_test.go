package tpt

import (
	"bytes"
	"math"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// window allocates a window in the stage's protection domain.
func (s *stage) window(k WindowType) STag {
	s.t.Helper()
	stag, err := s.AllocWindow(s.pd, k)
	if err != nil {
		s.t.Fatal(err)
	}
	return stag
}

// bind binds the window at the index of b.STag, or fails the test. It returns the next
// STag.
func (s *stage) bind(b Binding) STag {
	s.t.Helper()
	b.PD, b.STag = s.pd, s.NextSTag(b.STag)
	k, f := s.Bind(&b)
	if f != OK {
		s.t.Fatalf("bind %+v: %v", b, f)
	}
	if !s.Passed(k) {
		s.t.Fatal("nobody reads, and the bind has not passed")
	}
	return b.STag
}

// asks checks the access of a peer to n octets at to.
func (s *stage) asks(stag STag, qp uint32, right Rights, to uint64, n uint32) ([]byte, Fault) {
	return s.Check(Access{STag: stag, PD: s.pd, QP: qp, Right: right, TO: to, Len: n})
}

// TestWindowLife follows a window of each type (InfiniBand vol. 1 §10.6.7.2; WO
// 00/72170: allocate, bind, unbind, deallocate a remote key).
func TestWindowLife(t *testing.T) {
	for _, k := range []WindowType{Type1, Type2A, Type2B} {
		t.Run("type "+k.String(), func(t *testing.T) {
			everywhere(t, 64, func(t *testing.T, c Config) {
				s := newStage(t, c)
				for name, mem := range map[string][]byte{"heap": s.heap[100:300], "external": make([]byte, 200)} {
					windowLife(t, s, name, k, mem)
				}
				if got := s.Stats(); got != (Stats{Entries: 63, PDs: 1}) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func windowLife(t *testing.T, s *stage, name string, k WindowType, mem []byte) {
	region := s.register(mem, 1000, LocalWrite|Bind)
	free := s.window(k)
	if info, ok := s.Entry(free.Index()); !ok || info.Valid || info.Kind != KindWindow || info.Window != k || info.PD != s.pd {
		t.Errorf("%s, allocated: %+v", name, info)
	}
	if _, f := s.asks(free, 7, RemoteRead, 1000, 1); f != BadSTag {
		t.Errorf("%s, not bound: %v", name, f)
	}
	stag := s.bind(Binding{STag: free, Region: region, QP: 7, TO: 1003, Len: 41, Rights: RemoteWrite})
	if stag.Index() != free.Index() || stag.Key() == free.Key() {
		t.Errorf("%s: %v after %v", name, stag, free)
	}
	if got, f := s.asks(stag, 7, RemoteWrite, 1003, 41); f != OK || len(got) != 41 || &got[0] != &mem[3] {
		t.Errorf("%s: %v, %d octets", name, f, len(got))
	}
	other := map[WindowType]Fault{Type1: OK, Type2A: WrongPD, Type2B: WrongPD}[k]
	for i, c := range []struct {
		stag STag
		qp   uint32
		do   Rights
		to   uint64
		n    uint32
		want Fault
	}{
		{free, 7, RemoteWrite, 1003, 1, BadSTag},
		{stag, 8, RemoteWrite, 1003, 1, other},
		{stag, 7, RemoteRead, 1003, 1, NoRight},
		{stag, 7, LocalRead, 1003, 1, BadSTag}, // US 7,299,266 FIG. 15: windows are not for local access
		{stag, 7, RemoteWrite, 1002, 2, OutOfBounds},
		{stag, 7, RemoteWrite, 1003, 42, OutOfBounds},
		{region, 7, RemoteWrite, 1003, 1, NoRight},
	} {
		if _, f := s.asks(c.stag, c.qp, c.do, c.to, c.n); f != c.want {
			t.Errorf("%s, %d: %v, want %v", name, i, f, c.want)
		}
	}
	if info, _ := s.Entry(region.Index()); info.Windows != 1 {
		t.Errorf("%s: %d windows are bound", name, info.Windows)
	}
	if info, _ := s.Entry(stag.Index()); !info.Valid || info.Parent != region.Index() || info.Start != 1003 || info.Length != 41 {
		t.Errorf("%s, bound: %+v", name, info)
	}
	rig.Says(t, s.Deregister(region, s.pd), ErrBound, "1 windows")
	rig.Says(t, s.Invalidate(region, s.pd), ErrBound, "1 windows")
	rig.Says(t, s.Reregister(region, s.pd, Bind, false), ErrBound, "1 windows")
	unbound := s.bind(Binding{STag: stag, QP: 7})
	if _, f := s.asks(stag, 7, RemoteWrite, 1003, 1); f != BadSTag {
		t.Errorf("%s, unbound: %v", name, f)
	}
	if info, _ := s.Entry(unbound.Index()); info.STag != unbound || info.Valid || info.Parent != 0 || info.Length != 0 || info.Window != k {
		t.Errorf("%s, unbound: %+v", name, info)
	}
	again := s.bind(Binding{STag: unbound, Region: region, QP: 8, TO: 1000, Len: 200, Rights: RemoteRead, ZeroBased: true})
	if got, f := s.asks(again, 8, RemoteRead, 0, 200); f != OK || !bytes.Equal(got, mem) || &got[0] != &mem[0] {
		t.Errorf("%s, zero-based: %v", name, f)
	}
	for _, stag := range []STag{again, region} { // a bound window may be deallocated
		if err := s.Deregister(stag, s.pd); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRebind checks that a bind of a window of type 1 replaces the binding, and gives
// the region before back. The new region may be the old one.
func TestRebind(t *testing.T) {
	s := newStage(t, Config{})
	a, b := s.register(s.heap[:64], 0, Bind), s.register(s.heap[64:128], 0, Bind)
	w := s.window(Type1)
	for i, region := range []STag{a, a, b, a} {
		old := w
		w = s.bind(Binding{STag: w, Region: region, TO: uint64(i), Len: 8, Rights: RemoteRead})
		if _, f := s.asks(old, 1, RemoteRead, uint64(i), 8); f != BadSTag {
			t.Errorf("bind %d, old STag: %v", i, f)
		}
		if mem, f := s.asks(w, 1, RemoteRead, uint64(i), 8); f != OK || region == b && &mem[0] != &s.heap[64+i] {
			t.Errorf("bind %d: %v", i, f)
		}
		for _, r := range []STag{a, b} {
			want := uint32(0)
			if r == region {
				want = 1
			}
			if info, _ := s.Entry(r.Index()); info.Windows != want {
				t.Errorf("bind %d: %d windows, want %d", i, info.Windows, want)
			}
		}
	}
}

// TestRefusedBinds checks that a refused bind leaves region and binding as they were.
func TestRefusedBinds(t *testing.T) {
	s := newStage(t, Config{})
	other := s.domain()
	good := s.register(s.heap[:100], 1000, LocalWrite|Bind)
	readOnly := s.register(s.heap[:100], 1000, Bind)
	closed := s.register(s.heap[:100], 1000, LocalWrite|RemoteWrite)
	sevens := s.registerFor(7, s.heap[:100], LocalWrite|Bind)
	gone := s.register(s.heap[:100], 1000, Bind)
	if err := s.Invalidate(gone, s.pd); err != nil {
		t.Fatal(err)
	}
	bound := Binding{Region: good, TO: 1000, Len: 8, Rights: RemoteWrite, QP: 1}
	with := func(k WindowType) STag { b := bound; b.STag = s.window(k); return s.bind(b) }
	one, two := with(Type1), with(Type2A)
	for name, c := range map[string]struct {
		change func(b *Binding)
		want   Fault
	}{
		"no window":         {func(b *Binding) { b.STag = NewSTag(0, 0) }, BadSTag},
		"region as window":  {func(b *Binding) { b.STag = good }, BadSTag},
		"no region":         {func(b *Binding) { b.Region = NewSTag(1<<24-1, 0) }, BadSTag},
		"region's key":      {func(b *Binding) { b.Region ^= 1 }, BadSTag},
		"window as region":  {func(b *Binding) { b.Region = one }, BadSTag},
		"invalid region":    {func(b *Binding) { b.Region = gone }, BadSTag},
		"stranger":          {func(b *Binding) { b.PD = other }, WrongPD},
		"another's region":  {func(b *Binding) { b.Region, b.TO = sevens, 0 }, WrongPD},
		"another's window":  {func(b *Binding) { b.STag, b.QP = two, 2 }, WrongPD},
		"another's unbind":  {func(b *Binding) { b.STag, b.QP, b.Len = two, 2, 0 }, WrongPD},
		"bound, type 2":     {func(b *Binding) { b.STag = two }, Bound},
		"no windows":        {func(b *Binding) { b.Region = closed }, NoRight},
		"more than here":    {func(b *Binding) { b.Region = readOnly }, NoRight},
		"atomic, read only": {func(b *Binding) { b.Region, b.Rights = readOnly, RemoteAtomic }, NoRight},
		"local right":       {func(b *Binding) { b.Rights |= LocalWrite }, NoRight},
		"bind right":        {func(b *Binding) { b.Rights |= Bind }, NoRight},
		"before":            {func(b *Binding) { b.TO = 999 }, OutOfBounds},
		"longer":            {func(b *Binding) { b.Len = 101 }, OutOfBounds},
		"much longer":       {func(b *Binding) { b.Len = math.MaxUint64 - 1000 }, OutOfBounds},
		"behind":            {func(b *Binding) { b.TO, b.Len = 1100, 1 }, OutOfBounds},
		"wraps":             {func(b *Binding) { b.Len = math.MaxUint64 - 999 }, Wrap},
	} {
		before := everything(s)
		b := bound
		b.STag, b.PD, b.TO = s.NextSTag(one), s.pd, 1001
		c.change(&b)
		refused := s.Refusals()
		if k, f := s.Bind(&b); f != c.want || k != 0 {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
		refused[c.want]++
		if s.Refusals() != refused {
			t.Errorf("%s: counted %v", name, s.Refusals())
		}
		if after := everything(s); after != before {
			t.Errorf("%s: %+v, before %+v", name, after, before)
		}
	}
	for _, stag := range []STag{one, two} {
		if _, f := s.asks(stag, 1, RemoteWrite, 1000, 8); f != OK {
			t.Errorf("after all that: %v", f)
		}
	}
	s.bind(Binding{STag: one, Region: readOnly, TO: 1000, Len: 1, Rights: RemoteRead}) // reading needs no right of the region
	w := s.bind(Binding{STag: s.window(Type1), Region: sevens, Len: 1, QP: 7})
	if info, _ := s.Entry(w.Index()); info.QP != 7 {
		t.Errorf("a window of a region of queue pair 7 is of queue pair %d", info.QP)
	}
}

// everything returns all entries of a small table.
func everything(s *stage) (all [64]Info) {
	n := 0
	for i := range s.Stats().Entries {
		if info, ok := s.Entry(i + 1); ok {
			all[n] = info
			n++
		}
	}
	return all
}

// TestMostWindows checks that a region can have 65535 windows. The next bind is
// refused.
func TestMostWindows(t *testing.T) {
	s := newStage(t, Config{Entries: 1 << 17})
	region := s.register(s.heap[:8], 0, Bind)
	var last STag
	for range maxWindows {
		last = s.bind(Binding{STag: s.window(Type1), Region: region, Len: 1, Rights: RemoteRead})
	}
	b := Binding{STag: s.window(Type1), Region: region, PD: s.pd, Len: 1, Rights: RemoteRead}
	if _, f := s.Bind(&b); f != Bound {
		t.Errorf("one more: %v", f)
	}
	if info, ok := s.Entry(region.Index()); !ok || info.Windows != maxWindows || !info.Valid {
		t.Errorf("%+v", info)
	}
	s.bind(Binding{STag: last})
	s.bind(b)
	if err := s.DeallocWindow(last, s.pd); err != nil { // its key is another one now
		t.Error(err)
	}
	rig.Says(t, s.DeallocWindow(last, s.pd), ErrSTag)
	rig.Says(t, s.DeallocWindow(region, s.pd), ErrSTag)
}

func TestAllocWindow(t *testing.T) {
	s := newStage(t, Config{Entries: 4})
	for _, k := range []WindowType{0, 4} {
		_, err := s.AllocWindow(s.pd, k)
		rig.Says(t, err, ErrRights, "type 1, 2A or 2B")
	}
	_, err := s.AllocWindow(s.pd+1, Type1)
	rig.Says(t, err, ErrPD)
	for range 3 {
		s.window(Type2B)
	}
	_, err = s.AllocWindow(s.pd, Type1)
	rig.Says(t, err, ErrTableFull)
	rig.Says(t, s.FreePD(s.pd), ErrPDBusy, "3 entries")
}

// TestEngineAllocatesNothing checks the functions that an engine calls.
func TestEngineAllocatesNothing(t *testing.T) {
	s := newStage(t, Config{})
	region, w := s.register(make([]byte, 64), 0, Bind), s.window(Type1)
	touch := once(s)
	if n := testing.AllocsPerRun(1000, func() {
		w = NewSTag(w.Index(), w.Key()+1)
		b := Binding{STag: w, Region: region, PD: s.pd, Len: 8, Rights: RemoteRead}
		_, _ = s.Bind(&b)
		b.Len = 65
		_, _ = s.Bind(&b)
		_, _ = s.StartLocalInvalidate(w, s.pd, 1)
		_ = s.Touch(touch, 1)
		_, _ = s.Spend(touch)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
