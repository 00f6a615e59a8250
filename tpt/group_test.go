package tpt

import (
	"errors"
	"testing"
	"time"
)

// group is several tables over the same memory, as processes of a group have them.
type group struct {
	t      *testing.T
	config Config
	epochs []byte
}

func newGroup(t *testing.T, entries uint32) *group {
	return &group{t: t, config: Config{Memory: aligned(make([]byte, int(entries)*EntryLen+pageLen))[:entries*EntryLen], Pages: 1024}, epochs: aligned(make([]byte, EpochsLen+2*pageLen))[:EpochsLen]}
}

// member returns the table of the member with this range and number.
func (g *group) member(range_ int, number uint16) *stage {
	g.t.Helper()
	c := g.config
	c.Owner, c.Group = number, &Group{Member: range_, Members: 4, Epochs: g.epochs}
	return newStage(g.t, c)
}

const sharedPD = SharedPD | 1

// offer registers memory in a protection domain of all.
func (s *stage) offer(r Region) STag {
	s.t.Helper()
	if err := s.JoinPD(sharedPD); err != nil && !errors.Is(err, ErrPD) {
		s.t.Fatal(err)
	}
	r.PD = sharedPD
	stag, err := s.Register(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return stag
}

// Members hand out entries and protection domains of their own, and every one of them.
func TestGroupRanges(t *testing.T) {
	g := newGroup(t, 64)
	seen := map[uint32]bool{}
	pds := map[PD]bool{}
	for member := range 4 {
		s := g.member(member, uint16(10+member))
		for range 15 {
			stag := s.register(s.heap[:8], 0, RemoteRead)
			if i := stag.Index(); seen[i] || i/16 != uint32(member) || i%16 == 0 {
				t.Fatalf("member %d hands out entry %d", member, i)
			}
			seen[stag.Index()] = true
		}
		if _, err := s.Register(Region{PD: s.pd, Memory: s.heap[:8]}); !errors.Is(err, ErrTableFull) {
			t.Errorf("member %d hands out more entries than it has: %v", member, err)
		}
		if n := s.Stats(); n.First != uint32(16*member) || n.Entries != 15 || n.Used != 15 {
			t.Errorf("member %d: %+v", member, n)
		}
		for range 3 {
			if pd := s.domain(); pds[pd] || pd&SharedPD != 0 {
				t.Errorf("member %d hands out protection domain %#x", member, pd)
			} else {
				pds[pd] = true
			}
		}
	}
}

// A member accesses another's memory after Attach and until Detach, and only as the entry
// permits.
func TestAttach(t *testing.T) {
	g := newGroup(t, 256)
	a, b := g.member(0, 7), g.member(3, 9)
	stag := a.offer(Region{Memory: a.heap[4096:8192], Rights: LocalWrite | RemoteRead | RemoteWrite})
	if err := b.JoinPD(sharedPD); err != nil {
		t.Fatal(err)
	}
	var m Memo
	check := func(access Access, want Fault) []byte {
		t.Helper()
		access.STag = stag
		if access.PD == 0 {
			access.PD = sharedPD
		}
		if access.Right == 0 {
			access.Right = RemoteWrite
		}
		if access.Len == 0 {
			access.Len = 8
		}
		mem, f := m.Check(b.Table, access)
		if f != want {
			t.Fatalf("%+v: %v, want %v", access, f, want)
		}
		return mem
	}
	before := b.Refusals()
	check(Access{}, Unresolved)
	check(Access{PD: b.pd}, WrongPD)
	check(Access{Right: RemoteAtomic}, NoRight)
	check(Access{TO: 4089}, OutOfBounds)
	check(Access{Right: LocalRead}, BadSTag)
	if got := b.Refusals(); got[Unresolved] != before[Unresolved] {
		t.Error("an access that may still succeed counts as refused")
	}
	view := a.heap
	b.Attach(0, 8, view)
	check(Access{}, Unresolved) // of an earlier member with this range
	b.Attach(0, 7, view[:8191])
	check(Access{}, Unresolved) // the region is not wholly there
	b.Attach(0, 7, view)
	for range 2 { // also from the Memo
		mem := check(Access{TO: 16}, OK)
		if mem[0] = 42; a.heap[4096+16] != 42 || len(mem) != 8 {
			t.Error("the octets are not those of the owner")
		}
		if !m.External() {
			t.Error("memory of another process does not count as external: an access may fault")
		}
	}
	if _, f := a.StartInvalidate(stag, sharedPD, 0); f != NoRight {
		t.Errorf("the owner's peer invalidates: %v", f)
	}
	if b.Attached(0) != 7 || b.Attached(1) != 0 {
		t.Errorf("attached: %d and %d", b.Attached(0), b.Attached(1))
	}
	b.Detach(0)
	check(Access{}, Unresolved)
	b.Attach(0, 7, view)
	if err := a.Deregister(stag, sharedPD); err != nil {
		t.Fatal(err)
	}
	check(Access{}, BadSTag)
}

// Memory that is not in the owner's region heap stays unresolved, and so does memory with a
// page list. A region for one queue pair is only the owner's.
func TestNotShareable(t *testing.T) {
	g := newGroup(t, 256)
	a, b := g.member(1, 7), g.member(0, 9)
	b.Attach(1, 7, a.heap)
	rights := LocalWrite | RemoteWrite
	for name, c := range map[string]struct {
		region Region
		want   Fault
	}{
		"heap":              {Region{Memory: a.heap[:64], Rights: rights}, OK},
		"application's own": {Region{Memory: make([]byte, 64), Rights: rights}, Unresolved},
		"page list":         {Region{Pages: [][]byte{a.heap[:4096], a.heap[8192:12288]}, PageSize: 4096, Rights: rights}, Unresolved},
		"queue pair's":      {Region{Memory: a.heap[:64], Rights: rights, QP: 5}, WrongPD},
	} {
		stag := a.offer(c.region)
		mem, f := b.Check(Access{STag: stag, PD: sharedPD, QP: 5, Right: RemoteWrite, Len: 8})
		if f != c.want || (f == OK) != (mem != nil) {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
		if own, f := a.Check(Access{STag: stag, PD: sharedPD, QP: 5, Right: RemoteWrite, Len: 8}); f != OK || len(own) != 8 {
			t.Errorf("%s: the owner gets %v", name, f)
		}
	}
}

// A member cannot use another's entry in a verb or a work request. A peer can invalidate a
// region if it has that right.
func TestForeignEntry(t *testing.T) {
	g := newGroup(t, 256)
	a, b := g.member(2, 7), g.member(0, 9)
	if err := b.JoinPD(sharedPD); err != nil {
		t.Fatal(err)
	}
	keep := a.offer(Region{Memory: a.heap[:64], Rights: RemoteRead | Bind})
	give := a.offer(Region{Memory: a.heap[:64], Rights: RemoteRead | RemoteInvalidate})
	for name, err := range map[string]error{
		"Invalidate":   b.Invalidate(keep, sharedPD),
		"Deregister":   b.Deregister(keep, sharedPD),
		"Reregister":   b.Reregister(keep, sharedPD, RemoteRead, false),
		"TakeBack/Map": func() error { _, err := b.Map(keep, sharedPD, b.heap[:8]); return err }(),
	} {
		if !errors.Is(err, ErrSTag) {
			t.Errorf("%s of another's STag: %v", name, err)
		}
	}
	window, err := b.AllocWindow(sharedPD, Type1)
	if err != nil {
		t.Fatal(err)
	}
	if _, f := b.Bind(&Binding{STag: b.NextSTag(window), Region: keep, PD: sharedPD, Len: 8, Rights: RemoteRead}); f != BadSTag {
		t.Errorf("a window of another's region: %v", f)
	}
	for name, f := range map[string]Fault{
		"a work request": second(b.StartLocalInvalidate(keep, sharedPD, 0)),
		"deregister":     second(b.StartDeregister(give, sharedPD, 0)),
	} {
		if f != BadSTag {
			t.Errorf("%s: %v", name, f)
		}
	}
	b.Fail(keep)
	if f := second(b.StartInvalidate(keep, sharedPD, 0)); f != NoRight {
		t.Errorf("a peer invalidates without the right: %v", f)
	}
	if f := second(b.StartInvalidate(give, b.pd, 0)); f != WrongPD {
		t.Errorf("a peer of another protection domain invalidates: %v", f)
	}
	if _, f := a.Check(Access{STag: keep, PD: sharedPD, Right: RemoteRead, Len: 1}); f != OK {
		t.Fatalf("the region is gone: %v", f)
	}
	if f := second(b.StartInvalidate(give, sharedPD, 0)); f != OK {
		t.Errorf("a peer invalidates: %v", f)
	}
	if _, f := a.Check(Access{STag: give, PD: sharedPD, Right: RemoteRead, Len: 1}); f != BadSTag {
		t.Errorf("the region is still there: %v", f)
	}
	if err := a.Deregister(give, sharedPD); err != nil {
		t.Error(err)
	}
}

func second(_ Ticket, f Fault) Fault { return f }

// An invalidation waits for the engines of the other members, and not for those of a member
// that has ended.
func TestInvalidationWaitsForMembers(t *testing.T) {
	g := newGroup(t, 256)
	a, b := g.member(0, 7), g.member(1, 9)
	for name, leave := range map[string]func(*Reader){
		"leave": func(r *Reader) { r.Leave() },
		"bury":  func(*Reader) { a.Bury(1) },
	} {
		stag := a.offer(Region{Memory: a.heap[:64], Rights: RemoteRead})
		r := b.Join()
		r.Enter()
		done := make(chan error, 1)
		go func() { done <- a.Invalidate(stag, sharedPD) }()
		for {
			if _, f := a.Check(Access{STag: stag, PD: sharedPD, Right: RemoteRead, Len: 1}); f == BadSTag {
				break
			}
		}
		ticket, f := a.StartLocalInvalidate(stag, sharedPD, 0)
		if f != OK || a.Passed(ticket) {
			t.Fatalf("%s: the ticket has passed (%v), and the other member is in its step", name, f)
		}
		select {
		case err := <-done:
			t.Fatalf("%s: Invalidate has not waited: %v", name, err)
		case <-time.After(10 * time.Millisecond):
		}
		leave(r)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !a.Passed(ticket) {
			t.Errorf("%s: the ticket has not passed", name)
		}
	}
}

// A member has a limited number of slots that the others see. More Readers share some.
func TestManyReadersOfMember(t *testing.T) {
	g := newGroup(t, 256)
	a, b := g.member(0, 7), g.member(1, 9)
	var all []*Reader
	for range 2 * memberSlots {
		all = append(all, b.Join())
	}
	in := 0
	for _, r := range all[:memberSlots-commonReserve] {
		if r.Enter(); r.slot != nil {
			in++
		}
	}
	last := all[len(all)-1]
	last.Enter()
	stag := a.offer(Region{Memory: a.heap[:64], Rights: RemoteRead})
	ticket, _ := a.StartLocalInvalidate(stag, sharedPD, 0)
	for _, r := range all[:len(all)-1] {
		if a.Passed(ticket) {
			t.Fatal("the ticket has passed, and a Reader is in its step")
		}
		r.Close()
	}
	last.Close()
	if !a.Passed(ticket) {
		t.Error("the ticket has not passed")
	}
}

// A range that another process takes over has no valid entry of the old one.
func TestRangeTakenOver(t *testing.T) {
	g := newGroup(t, 256)
	a, b := g.member(0, 7), g.member(1, 9)
	stag := a.offer(Region{Memory: a.heap[:64], Rights: RemoteRead})
	theirs := b.offer(Region{Memory: b.heap[:64], Rights: RemoteRead})
	b.Attach(0, 7, a.heap)
	next := g.member(0, 8)
	if _, f := b.Check(Access{STag: stag, PD: sharedPD, Right: RemoteRead, Len: 1}); f != BadSTag {
		t.Errorf("an entry of the member before: %v", f)
	}
	if _, f := b.Check(Access{STag: theirs, PD: sharedPD, Right: RemoteRead, Len: 1}); f != OK {
		t.Errorf("the entry of another range: %v", f)
	}
	stag = next.offer(Region{Memory: next.heap[:64], Rights: RemoteRead})
	if _, f := b.Check(Access{STag: stag, PD: sharedPD, Right: RemoteRead, Len: 1}); f != Unresolved {
		t.Errorf("an access reaches the memory of the member before: %v", f)
	}
}

func TestGroupConfig(t *testing.T) {
	g := newGroup(t, 64)
	for name, change := range map[string]func(*Config){
		"no number":       func(c *Config) { c.Owner = 0 },
		"three members":   func(c *Config) { c.Group.Members = 3 },
		"too many":        func(c *Config) { c.Group.Members = 32 },
		"member 4 of 4":   func(c *Config) { c.Group.Member = 4 },
		"no memory":       func(c *Config) { c.Memory = nil; c.Entries = 64 },
		"too few entries": func(c *Config) { c.Memory = c.Memory[:4*EntryLen] },
		"short epochs":    func(c *Config) { c.Group.Epochs = c.Group.Epochs[:64] },
	} {
		c := g.config
		c.Owner, c.Group = 1, &Group{Members: 4, Epochs: g.epochs}
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s := g.member(0, 1)
	for pd, why := range map[PD]string{1: "not the group's", sharedPD: "joined already"} {
		s.JoinPD(sharedPD)
		if err := s.JoinPD(pd); !errors.Is(err, ErrPD) {
			t.Errorf("%s: %v", why, err)
		}
	}
	alone := newStage(t, Config{Entries: 64})
	if err := alone.JoinPD(sharedPD); !errors.Is(err, ErrPD) {
		t.Errorf("a table without a group: %v", err)
	}
	if err := s.FreePD(sharedPD); err != nil {
		t.Error(err)
	}
	if err := s.JoinPD(sharedPD); err != nil {
		t.Error(err)
	}
}
