package tpt

import (
	"errors"
	"sync"
	"testing"
)

// tags reserves n entries of a stage's protection domain.
func (s *stage) tags(n int) *Tags {
	s.t.Helper()
	g, err := s.ReserveTags(s.pd, n)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// TestTagsAreChecked walks the checks of US 7,299,266, FIG. 17B, in their order.
func TestTagsAreChecked(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		s := newStage(t, c)
		g, same := s.tags(3), s.tags(3)
		other, err := s.ReserveTags(s.domain(), 1)
		if err != nil {
			t.Fatal(err)
		}
		in := g.Bind(1, 100, RemoteWrite)
		out := g.Bind(2, 100, RemoteRead)
		none := g.Bind(0, 0, 0)
		region := s.register(s.heap[:100], 0, LocalWrite|RemoteWrite)
		for _, c := range []struct {
			name   string
			s      STag
			r      Rights
			off, n uint32
			slot   int
			want   Fault
		}{
			{"all of it", in, RemoteWrite, 0, 100, 1, OK},
			{"the last octet", in, RemoteWrite, 99, 1, 1, OK},
			{"nothing at the end", in, RemoteWrite, 100, 0, 1, OK},
			{"a read of the other", out, RemoteRead, 10, 20, 2, OK},
			{"a status", in, 0, 0, 0, 1, OK},
			{"a status of no data", none, 0, 0, 0, 0, OK},
			{"no tag", noTag, 0, 0, 0, 0, BadSTag},
			{"index 0", NewSTag(0, 7), 0, 0, 0, 0, BadSTag},
			{"an index past the table", NewSTag(64, in.Key()), 0, 0, 0, 0, BadSTag},
			{"another key", in ^ 1, RemoteWrite, 0, 1, 0, BadSTag},
			{"a region", region, RemoteWrite, 0, 1, 0, BadSTag},
			{"another protection domain's", other.Bind(0, 100, RemoteWrite), RemoteWrite, 0, 1, 0, WrongPD},
			{"another connection's of the domain", same.Bind(1, 100, RemoteWrite), RemoteWrite, 0, 1, 0, WrongPD},
			{"one octet too many", in, RemoteWrite, 0, 101, 0, OutOfBounds},
			{"beyond the end", in, RemoteWrite, 101, 0, 0, OutOfBounds},
			{"around 2^32", in, RemoteWrite, 0xffffffff, 2, 0, OutOfBounds},
			{"data without EDTL", none, RemoteWrite, 0, 1, 0, OutOfBounds},
			{"data for a write", out, RemoteWrite, 0, 1, 0, NoRight},
			{"R2T for a read", in, RemoteRead, 0, 1, 0, NoRight},
		} {
			before := s.Refusals()[c.want]
			slot, f := g.Check(c.s, c.r, c.off, c.n)
			if slot != c.slot || f != c.want {
				t.Errorf("%s: slot %d, %v, want slot %d, %v", c.name, slot, f, c.slot, c.want)
			}
			if f != OK && s.Refusals()[f] != before+1 {
				t.Errorf("%s: the refusal is not counted", c.name)
			}
		}
		g.Revoke(1)
		if _, f := g.Check(in, 0, 0, 0); f != BadSTag {
			t.Errorf("after Revoke: %v", f)
		}
		if i, ok := g.Slot(in); i != 1 || !ok {
			t.Errorf("slot of a revoked tag: %d, %v", i, ok)
		}
		if _, ok := g.Slot(region); ok {
			t.Error("a region has a slot")
		}
		if _, ok := other.Slot(in); ok {
			t.Error("a tag has a slot in another connection")
		}
	})
}

// TestVerbsKnowNoTag: no way of an RDMA peer or of a work request leads to a tag.
func TestVerbsKnowNoTag(t *testing.T) {
	s := newStage(t, Config{Entries: 64})
	g := s.tags(2)
	tag := g.Bind(0, 100, RemoteRead|RemoteWrite)
	if _, f := s.Check(Access{STag: tag, PD: s.pd, Right: RemoteWrite, Len: 1}); f != BadSTag {
		t.Errorf("Check: %v", f)
	}
	if _, f := s.Check(Access{STag: tag, PD: s.pd, Right: LocalRead, Len: 1}); f != BadSTag {
		t.Errorf("local Check: %v", f)
	}
	if _, f := s.StartInvalidate(tag, s.pd, 0); f != BadSTag {
		t.Errorf("StartInvalidate: %v", f)
	}
	if _, f := s.StartLocalInvalidate(tag, s.pd, 0); f != BadSTag {
		t.Errorf("StartLocalInvalidate: %v", f)
	}
	if _, f := s.StartDeregister(tag, s.pd, 0); f != BadSTag {
		t.Errorf("StartDeregister: %v", f)
	}
	for name, err := range map[string]error{
		"Invalidate": s.Invalidate(tag, s.pd), "Deregister": s.Deregister(tag, s.pd), "Reregister": s.Reregister(tag, s.pd, RemoteRead, false),
	} {
		if !errors.Is(err, ErrSTag) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Map(tag, s.pd, s.heap[:10]); !errors.Is(err, ErrSTag) {
		t.Errorf("Map: %v", err)
	}
	if s.Memory(tag, 0, 1, func([]byte) {}) {
		t.Error("Memory leads somewhere")
	}
	s.Fail(tag)
	if _, f := g.Check(tag, RemoteWrite, 0, 100); f != OK {
		t.Errorf("the tag has become invalid: %v", f)
	}
	info, ok := s.Entry(tag.Index())
	if !ok || info.Kind != KindISCSI || !info.Valid || info.Length != 100 || info.Slot != 0 || info.Rights != RemoteRead|RemoteWrite {
		t.Errorf("%+v", info)
	}
}

// TestTagsCountUp: a slot has the same index and the next key each time, never the
// value that means no tag.
func TestTagsCountUp(t *testing.T) {
	s := newStage(t, Config{Entries: 1 << 24})
	g := s.tags(1)
	g.slots[0] = 1<<24 - 1 // the only index that can make 0xffffffff
	e := &s.entries[g.slots[0]]
	e.fill(fields{pd: s.pd})
	e.publish(e.load().next(0xfd, KindISCSI, 0))
	var got []STag
	for range 4 {
		got = append(got, g.Bind(0, 1, 0))
		g.Revoke(0)
	}
	want := []STag{0xfffffffe, 0xffffff00, 0xffffff01, 0xffffff02}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("tags %v, want %v", got, want)
		}
	}
}

func TestTagsCountInTheQuota(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		c.PerPD = 10
		s := newStage(t, c)
		g := s.tags(8)
		if _, err := s.ReserveTags(s.pd, 3); !errors.Is(err, ErrQuota) {
			t.Errorf("beyond the quota: %v", err)
		}
		s.register(s.heap[:1], 0, LocalRead)
		s.tags(1)
		if _, err := s.Register(Region{PD: s.pd, Memory: s.heap[:1]}); !errors.Is(err, ErrQuota) {
			t.Errorf("a region beyond the quota: %v", err)
		}
		if err := s.FreePD(s.pd); !errors.Is(err, ErrPDBusy) {
			t.Errorf("free the domain: %v", err)
		}
		used := s.Stats().Used
		g.Release()
		g.Release()
		if now := s.Stats().Used; now != used-8 {
			t.Errorf("%d entries used, and %d after Release of 8", used, now)
		}
		s.tags(8)
		for pd := s.domain(); ; pd = s.domain() {
			if _, err := s.ReserveTags(pd, 10); errors.Is(err, ErrTableFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.ReserveTags(99999, 1); !errors.Is(err, ErrPD) {
			t.Errorf("no such domain: %v", err)
		}
		for _, n := range []int{-1, 0, MaxTags + 1} {
			if _, err := s.ReserveTags(s.pd, n); !errors.Is(err, ErrMemory) {
				t.Errorf("%d tags: %v", n, err)
			}
		}
	})
}

// TestTagsFindAForeignWriter: all entries but the foreign one are free again.
func TestTagsFindAForeignWriter(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	e := &s.entries[5]
	e.publish(e.load().next(1, KindRegion, wordValid))
	if _, err := s.ReserveTags(s.pd, 7); !errors.Is(err, ErrForeign) {
		t.Fatal(err)
	}
	if used := s.Stats().Used; used != 1 {
		t.Errorf("%d entries used, want the foreign one", used)
	}
	if s.tags(6); s.pds[s.pd].entries != 6 {
		t.Errorf("the domain has %d entries", s.pds[s.pd].entries)
	}
}

// TestWithdraw: one side binds and revokes within steps, others withdraw what they see.
// When a withdrawal's ticket has passed, no check of that tag succeeds any more.
func TestWithdraw(t *testing.T) {
	s := newStage(t, Config{Entries: 64})
	g := s.tags(4)
	r := s.Join()
	defer r.Close()
	tags := make(chan STag, 64)
	gone := make(chan STag, 64)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for tag := range tags {
				if k, ok := g.Withdraw(tag); ok {
					s.epochs.wait(k)
					gone <- tag
				}
			}
		})
	}
	withdrawn := 0
	for i := range 20000 {
		r.Enter()
		slot := i % 4
		tag := g.Bind(slot, 10, RemoteWrite)
		select {
		case tags <- tag:
		default:
		}
		for range i % 3 {
			g.Check(tag, RemoteWrite, 0, 10)
		}
		select {
		case old := <-gone:
			withdrawn++
			if old == tag {
				t.Fatal("a ticket has passed within the step in which the tag was valid")
			}
		default:
		}
		r.Leave()
		r.Enter()
		g.Revoke(slot)
		if _, f := g.Check(tag, 0, 0, 0); f != BadSTag {
			t.Fatalf("a revoked tag: %v", f)
		}
		r.Leave()
		for len(gone) > 32 {
			<-gone
			withdrawn++
		}
	}
	close(tags)
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-gone:
			withdrawn++
		case <-done:
			ended = true
		}
	}
	if _, ok := g.Withdraw(NewSTag(0, 0)); ok {
		t.Error("withdrew index 0")
	}
	tag := g.Bind(0, 1, 0)
	if _, ok := g.Withdraw(tag); !ok {
		t.Error("did not withdraw a valid tag")
	}
	if _, ok := g.Withdraw(tag); ok {
		t.Error("withdrew a tag twice")
	}
	t.Logf("%d tags withdrawn", withdrawn)
}

func TestTagsAllocateNothing(t *testing.T) {
	s := newStage(t, Config{Entries: 64})
	g := s.tags(4)
	if n := testing.AllocsPerRun(1000, func() {
		tag := g.Bind(3, 4096, RemoteWrite)
		if _, f := g.Check(tag, RemoteWrite, 0, 4096); f != OK {
			t.Fatal(f)
		}
		g.Revoke(3)
		g.Check(tag, RemoteWrite, 0, 4096)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTags is a command with one Data-In and one Response.
func BenchmarkTags(b *testing.B) {
	tables(b, func(b *testing.B, s *stage) {
		g := s.tags(128)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			tag := g.Bind(i&127, 4096, RemoteWrite)
			if _, f := g.Check(tag, RemoteWrite, 0, 4096); f != OK {
				b.Fatal(f)
			}
			if _, f := g.Check(tag, 0, 0, 0); f != OK {
				b.Fatal(f)
			}
			g.Revoke(i & 127)
		}
	})
}

// TestOwnTags: tags that are not in the table serve only their own connection, take no entry
// of the table, and are gone after Release.
func TestOwnTags(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		s := newStage(t, c)
		free := s.slots.free
		g, err := s.OwnTags(s.pd, 100)
		if err != nil {
			t.Fatal(err)
		}
		other := s.tags(1)
		first, last := g.Bind(0, 10, RemoteWrite), g.Bind(99, 20, RemoteRead)
		stale := g.Bind(50, 10, RemoteWrite)
		g.Revoke(50)
		g.Bind(50, 10, RemoteWrite)
		for _, c := range []struct {
			name string
			s    STag
			r    Rights
			n    uint32
			slot int
			want Fault
		}{
			{"the first", first, RemoteWrite, 10, 0, OK},
			{"the last", last, RemoteRead, 20, 99, OK},
			{"too many octets", first, RemoteWrite, 11, 0, OutOfBounds},
			{"the other right", last, RemoteWrite, 1, 0, NoRight},
			{"one that was revoked", stale, RemoteWrite, 1, 0, BadSTag},
			{"index 0", NewSTag(0, 1), 0, 0, 0, BadSTag},
			{"an index past the last", NewSTag(101, last.Key()), 0, 0, 0, BadSTag},
			{"the greatest index", NewSTag(1<<24-1, 1), 0, 0, 0, BadSTag},
			{"no tag", noTag, 0, 0, 0, BadSTag},
		} {
			if i, f := g.Check(c.s, c.r, 0, c.n); i != c.slot || f != c.want {
				t.Errorf("%s: slot %d, %v; want slot %d, %v", c.name, i, f, c.slot, c.want)
			}
		}
		if _, f := other.Check(first, RemoteWrite, 0, 1); f == OK {
			t.Error("tags of the table serve one that is not there")
		}
		if ticket, ok := g.Withdraw(first); !ok || !s.Passed(ticket) {
			t.Error("a valid tag is not withdrawn")
		}
		if _, f := g.Check(first, RemoteWrite, 0, 1); f != BadSTag {
			t.Errorf("a tag that was withdrawn: %v", f)
		}
		if s.slots.free != free-1 {
			t.Errorf("%d entries of the table are taken, want 1", free-s.slots.free)
		}
		other.Release()
		g.Release()
		g.Release()
		if _, ok := g.Slot(last); ok {
			t.Error("a tag has a slot after Release")
		}
		if _, err := s.OwnTags(s.pd, MaxTags+1); !errors.Is(err, ErrMemory) {
			t.Errorf("too many tags: %v", err)
		}
	})
}
