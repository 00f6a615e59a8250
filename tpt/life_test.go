package tpt

import (
	"math"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

func TestLife(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		c.Owner = 9
		s := newStage(t, c)
		for name, mem := range map[string][]byte{"heap": s.heap[100:200], "external": make([]byte, 100)} {
			stag := s.register(mem, 7, LocalWrite|RemoteRead)
			a := Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: 7, Len: 100}
			if _, f := s.Check(a); f != OK {
				t.Fatalf("%s: %v", name, f)
			}
			info, ok := s.Entry(stag.Index())
			want := Info{STag: stag, Kind: KindRegion, Valid: true, Owner: 9, Generation: info.Generation, PD: s.pd,
				Start: 7, Length: 100, Rights: LocalRead | LocalWrite | RemoteRead, External: name == "external"}
			if name == "heap" {
				want.Offset = 100
			}
			if !ok || info != want || info.Generation == 0 {
				t.Errorf("%s: %+v, want %+v", name, info, want)
			}
			for range 2 { // a second call is no error
				if err := s.Invalidate(stag, s.pd); err != nil {
					t.Fatal(err)
				}
				if _, f := s.Check(a); f != BadSTag {
					t.Errorf("%s, invalid: %v", name, f)
				}
			}
			if info, ok := s.Entry(stag.Index()); !ok || info.Valid || info.Length != 100 {
				t.Errorf("%s, invalid: %+v, %v", name, info, ok)
			}
			if err := s.Deregister(stag, s.pd); err != nil {
				t.Fatal(err)
			}
			if _, ok := s.Entry(stag.Index()); ok {
				t.Errorf("%s: deregistered, and shown", name)
			}
			rig.Says(t, s.Invalidate(stag, s.pd), ErrSTag, stag.String())
			rig.Says(t, s.Deregister(stag, s.pd), ErrSTag, stag.String())
			if first, _ := s.external.at(stag.Index()); first != nil {
				t.Error("deregistered memory is kept alive")
			}
		}
		if got := s.Stats(); got != (Stats{Entries: 63, PDs: 1}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestRefusedRegions(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	mem := make([]byte, 16)
	for name, c := range map[string]struct {
		r  Region
		is error
	}{
		"no memory":       {Region{PD: s.pd}, ErrMemory},
		"empty memory":    {Region{PD: s.pd, Memory: mem[:0]}, ErrMemory},
		"past the top":    {Region{PD: s.pd, Memory: mem, Start: math.MaxUint64 - 14}, ErrMemory},
		"no domain":       {Region{Memory: mem}, ErrPD},
		"unknown domain":  {Region{PD: s.pd + 1, Memory: mem}, ErrPD},
		"unknown right":   {Region{PD: s.pd, Memory: mem, Rights: 1 << 7}, ErrRights},
		"remote write":    {Region{PD: s.pd, Memory: mem, Rights: RemoteWrite}, ErrRights},
		"remote atomic":   {Region{PD: s.pd, Memory: mem, Rights: RemoteAtomic | RemoteRead}, ErrRights},
		"window, no bind": {Region{PD: s.pd, Memory: mem, Rights: Bind | RemoteWrite}, ErrRights},
	} {
		t.Run(name, func(t *testing.T) {
			stag, err := s.Register(c.r)
			rig.Says(t, err, c.is, "register", ":")
			if stag != 0 || s.Stats().Used != 0 {
				t.Errorf("%v, %d entries used", stag, s.Stats().Used)
			}
		})
	}
	s.register(mem, math.MaxUint64-15, 0) // ends exactly at the highest offset
}

func TestWrongDomain(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	other := s.domain()
	stag := s.register(s.heap[:8], 0, RemoteRead)
	rig.Says(t, s.Invalidate(stag, other), ErrPD, stag.String())
	rig.Says(t, s.Deregister(stag, other), ErrPD, stag.String())
	for name, wrong := range map[string]STag{"key": stag ^ 0x80, "index 0": NewSTag(0, stag.Key()), "no entry": NewSTag(9, 0), "free": stag ^ 0x100} {
		if err := s.Deregister(wrong, s.pd); err == nil {
			t.Errorf("%s: deregistered", name)
		}
	}
	if _, f := s.Check(Access{STag: stag, PD: s.pd, Right: RemoteRead, Len: 8}); f != OK {
		t.Errorf("after all that: %v", f)
	}
}

func TestBoundRegionStays(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	stag := s.register(s.heap[:8], 0, RemoteRead)
	e, _ := s.at(stag)
	e.publish(e.load() | 2<<wordWindows)
	rig.Says(t, s.Deregister(stag, s.pd), ErrBound, "2 windows")
	if _, f := s.StartInvalidate(stag, s.pd, 1); f != Bound {
		t.Errorf("a peer: %v", f)
	}
	e.publish(e.load() &^ (maxWindows << wordWindows))
	if err := s.Deregister(stag, s.pd); err != nil {
		t.Error(err)
	}
}

func TestStartInvalidate(t *testing.T) {
	s := newStage(t, Config{Entries: 16})
	other := s.domain()
	open := s.register(s.heap[:8], 0, RemoteRead|RemoteInvalidate)
	shared := s.register(s.heap[:8], 0, RemoteRead)
	bound := s.registerFor(1, s.heap[:8], RemoteRead)
	local := s.registerFor(1, s.heap[:8], LocalWrite)
	given := s.registerFor(2, s.heap[:8], LocalWrite|RemoteInvalidate)
	for _, c := range []struct {
		name string
		stag STag
		pd   PD
		want Fault
		wait bool // for engines that may use the entry
	}{
		{"index 0", 0, s.pd, BadSTag, false},
		{"no entry", 0xffffff00, s.pd, BadSTag, false},
		{"key", open ^ 1, s.pd, BadSTag, false},
		{"domain", open, other, WrongPD, false},
		{"several streams share it", shared, s.pd, NoRight, false},
		{"no peer may access it", local, s.pd, NoRight, false},
		{"bound to another stream", given, s.pd, WrongPD, false},
		{"bound to the stream", bound, s.pd, OK, false},
		{"bound to the stream, and already invalid", bound, s.pd, OK, true},
		{"right", open, s.pd, OK, true},
		{"already invalid", open, s.pd, OK, true},
	} {
		k, f := s.StartInvalidate(c.stag, c.pd, 1)
		if f != c.want || c.wait != (k != 0) {
			t.Errorf("%s: %v, ticket %d", c.name, f, k)
		}
		if !s.Passed(k) {
			t.Errorf("%s: nobody reads, and it has not passed", c.name)
		}
	}
	for qp, stag := range map[uint32]STag{1: local, 2: given, 3: shared} {
		if _, f := s.Check(Access{STag: stag, PD: s.pd, QP: qp, Right: LocalRead, Len: 8}); f != OK {
			t.Errorf("%v, which no peer may invalidate: %v", stag, f)
		}
	}
	if got := s.Refusals(); got != [Faults]uint64{BadSTag: 3, WrongPD: 2, NoRight: 2} {
		t.Errorf("counted %v", got)
	}
	if err := s.Deregister(open, s.pd); err != nil {
		t.Error(err)
	}
	if _, f := s.StartInvalidate(open, s.pd, 1); f != BadSTag {
		t.Errorf("deregistered: %v", f)
	}
}

func TestDomains(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	a, b := s.register(s.heap[:8], 0, 0), s.register(s.heap[:8], 0, 0)
	rig.Says(t, s.FreePD(s.pd), ErrPDBusy, "2 entries")
	for _, stag := range []STag{a, b} {
		if err := s.Deregister(stag, s.pd); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.FreePD(s.pd); err != nil {
		t.Error(err)
	}
	rig.Says(t, s.FreePD(s.pd), ErrPD)
	rig.Says(t, s.FreePD(0), ErrPD)
	s.lastPD = math.MaxUint32 - 1
	if last, next := s.domain(), s.domain(); last != math.MaxUint32 || next != 1 {
		t.Errorf("domains %d and %d: want the last and then 1", last, next)
	}
	s.lastPD = 0
	if pd := s.domain(); pd != 2 {
		t.Errorf("domain %d, which is in use or skipped one", pd)
	}
}

func TestFullAndRoomAgain(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		s := newStage(t, c)
		seen := map[uint32]bool{}
		var last STag
		for range 63 {
			last = s.register(s.heap[:8], 0, 0)
			if i := last.Index(); i == 0 || i > 63 || seen[i] {
				t.Fatalf("index %d", i)
			}
			seen[last.Index()] = true
		}
		for range 2 {
			_, err := s.Register(Region{PD: s.pd, Memory: s.heap})
			rig.Says(t, err, ErrTableFull, "63 entries")
			if err := s.Deregister(last, s.pd); err != nil {
				t.Fatal(err)
			}
			next := s.register(s.heap[:8], 0, 0)
			if next.Index() != last.Index() || next.Key() == last.Key() {
				t.Errorf("%v after %v", next, last)
			}
			last = next
		}
	})
}

// uses registers and deregisters n times.
func (s *stage) uses(n int) (stags []STag) {
	s.t.Helper()
	for range n {
		stag := s.register(s.heap[:8], 0, 0)
		if err := s.Deregister(stag, s.pd); err != nil {
			s.t.Fatal(err)
		}
		stags = append(stags, stag)
	}
	return stags
}

// TestReuse checks that an entry is not used again before half of the others have been
// used. It then has another key.
func TestReuse(t *testing.T) {
	s := newStage(t, Config{Entries: 256, Seed: [32]byte{1}})
	last := map[uint32]int{}
	keys := map[uint32]uint8{}
	for i, stag := range s.uses(5000) {
		if before, used := last[stag.Index()]; used && i-before < 128 {
			t.Fatalf("use %d is of entry %d, which use %d was of", i, stag.Index(), before)
		} else if used && stag.Key() == keys[stag.Index()] {
			t.Fatalf("use %d has the key of use %d", i, before)
		}
		last[stag.Index()], keys[stag.Index()] = i, stag.Key()
	}
	if len(last) != 255 {
		t.Errorf("%d of 255 entries have been used", len(last))
	}
}

// TestUnpredictable checks that a peer that has seen every entry cannot predict the
// next STags, neither by their order nor by their keys (RFC 5040 §8.1.1).
func TestUnpredictable(t *testing.T) {
	const entries, rounds = 64, 200
	s := newStage(t, Config{Entries: entries, Seed: [32]byte{1}})
	seen := s.uses(entries - 1)
	rising, sameOrder, following := 0, 0, 0
	keys := map[uint8]bool{}
	for range rounds {
		next := s.uses(entries - 1)
		for i, stag := range next {
			if i > 0 && stag.Index() == next[i-1].Index()+1 {
				rising++
			}
			if stag.Index() == seen[i].Index() {
				sameOrder++
			}
			if at := slices.IndexFunc(seen, func(o STag) bool { return o.Index() == stag.Index() }); at >= 0 && stag.Key() == seen[at].Key()+1 {
				following++
			}
			keys[stag.Key()] = true
		}
		seen = next
	}
	// By chance an index is the expected one at most once in 32 times, and a key once
	// in 255 times. Three times as often is too often.
	all := rounds * (entries - 1)
	if rising > 3*all/32 || sameOrder > 3*all/32 || following > 3*all/255 || len(keys) != 256 {
		t.Errorf("of %d STags %d follow the one before, %d come in the order of the round before, %d have the following key; there are %d keys",
			all, rising, sameOrder, following, len(keys))
	}
}

func TestSeeds(t *testing.T) {
	first := func(c Config) (stags [8]STag) {
		s := newStage(t, c)
		for i := range stags {
			stags[i] = s.register(s.heap[:8], 0, 0)
		}
		return stags
	}
	seeded := Config{Seed: [32]byte{1}}
	if a, b := first(seeded), first(seeded); a != b {
		t.Errorf("one seed, two orders: %v and %v", a, b)
	}
	if a, b := first(Config{}), first(Config{}); a == b {
		t.Errorf("no seed, one order: %v", a)
	}
}

// TestInherit checks that the entries of an earlier owner are freed, and that their
// STags stay invalid.
func TestInherit(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		if c.Memory == nil {
			c.Memory = aligned(make([]byte, 64*EntryLen+pageLen))[:64*EntryLen]
		}
		old := newStage(t, c)
		stags := map[uint32]STag{}
		for range 10 {
			stag := old.register(old.heap[:64], 0, LocalWrite|RemoteWrite)
			stags[stag.Index()] = stag
		}
		for _, stag := range stags {
			e, _ := old.at(stag)
			e.publish(e.load()&^wordValid | wordBusy) // the owner died while it wrote
			break
		}
		s := newStage(t, c)
		if got := s.Stats().Used; got != 0 {
			t.Errorf("%d entries in use", got)
		}
		for range 63 {
			next := s.register(s.heap[:64], 0, LocalWrite|RemoteWrite)
			if stag, ok := stags[next.Index()]; ok && next.Key() == stag.Key() {
				t.Errorf("%v after %v", next, stag)
			}
		}
		for _, stag := range stags {
			if _, f := s.Check(Access{STag: stag, PD: s.pd, Right: RemoteWrite, Len: 1}); f != BadSTag {
				t.Errorf("%v of the owner before: %v", stag, f)
			}
		}
	})
}

// TestForeignWriter checks that an entry that another process has locked is not
// changed.
func TestForeignWriter(t *testing.T) {
	s := newStage(t, Config{Entries: 2})
	s.entries[1].publish(wordBusy)
	_, err := s.Register(Region{PD: s.pd, Memory: s.heap})
	rig.Says(t, err, ErrForeign, "entry 1")
	if s.entries[1].load() != wordBusy {
		t.Error("written to all the same")
	}
	if err := s.FreePD(s.pd); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	pages := aligned(make([]byte, 3*pageLen))[:pageLen]
	for name, c := range map[string]Config{
		"one entry":      {Entries: 1},
		"no power":       {Entries: 100},
		"too many":       {Entries: 1 << 25},
		"other memory":   {Entries: 128, Memory: pages},
		"no memory":      {Memory: []byte{}},
		"odd memory":     {Memory: pages[:96*EntryLen/2]},
		"not page start": {Memory: pages[pageLen/2:]},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for want, c := range map[uint32]Config{
		65535: {}, 1: {Entries: 2}, 63: {Memory: pages},
	} {
		table, err := New(c)
		if err != nil || table.Stats().Entries != want {
			t.Errorf("%+v, want %d entries: %v", c.Entries, want, err)
		}
	}
}
