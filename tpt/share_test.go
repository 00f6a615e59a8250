package tpt

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// share shares a region with another protection domain.
func (s *stage) share(stag STag, r Region) STag {
	s.t.Helper()
	shared, err := s.Share(stag, s.pd, r)
	if err != nil {
		s.t.Fatal(err)
	}
	return shared
}

// Several regions over one translation have their own rights, protection domains and
// offsets, and reach the same octets. The translation goes with the last of them (US
// 7,299,266, FIG. 14).
func TestShare(t *testing.T) {
	luck := rand.New(rand.NewPCG(13, 14))
	s, heap, external := scattered(t, Config{Entries: 64, Pages: 4096}, 600)
	other := s.domain()
	for name, r := range map[string]Region{
		"heap":            {Memory: heap[100:4100]},
		"external":        {Memory: external[100:4100]},
		"pages":           {Pages: cut(luck, heap[:5*pageSize], 9, 9), PageSize: pageSize},
		"external, pages": {Pages: cut(luck, external[:5*pageSize], 9, 9), PageSize: pageSize},
		"many pages":      {Pages: cut(luck, external, 9, 9), PageSize: pageSize},
	} {
		r.PD, r.Rights = s.pd, LocalWrite|RemoteWrite
		first, err := s.Register(r)
		if err != nil {
			t.Fatal(err)
		}
		used, whole := s.runs.free, flat(r.list())
		second := s.share(first, Region{PD: other, Start: 1000, Rights: RemoteRead})
		third := s.share(first, Region{PD: s.pd, QP: 7, Rights: RemoteRead})
		if s.runs.free != used {
			t.Errorf("%s: a shared region takes places of att", name)
		}
		a := Access{STag: first, PD: s.pd, QP: 7, Right: RemoteRead, Len: 1}
		for i, c := range []struct {
			stag STag
			pd   PD
			to   uint64
			want Fault
		}{{first, s.pd, 0, NoRight}, {second, s.pd, 1000, WrongPD}, {second, other, 0, OutOfBounds}, {second, other, 1000, OK}, {third, other, 0, WrongPD}} {
			a.STag, a.PD, a.TO = c.stag, c.pd, c.to
			if _, f := s.Check(a); f != c.want {
				t.Errorf("%s, %d: %v, want %v", name, i, f, c.want)
			}
		}
		if info, _ := s.Entry(second.Index()); info.Shared != 3 || info.Length != uint64(len(whole)) {
			t.Errorf("%s: %+v", name, info)
		}
		if err := s.Deregister(first, s.pd); err != nil { // the first goes first
			t.Fatal(err)
		}
		tryPages(t, luck, s, name, Access{STag: second, PD: other, Right: RemoteRead, TO: 1000}, whole, uint32(0))
		if err := s.Deregister(second, other); err != nil {
			t.Fatal(err)
		}
		tryPages(t, luck, s, name, Access{STag: third, PD: s.pd, QP: 7, Right: RemoteRead}, whole, uint32(0))
		if info, _ := s.Entry(third.Index()); info.Shared != 0 {
			t.Errorf("%s: %d regions share, and one is left", name, info.Shared)
		}
		if err := s.Deregister(third, s.pd); err != nil {
			t.Fatal(err)
		}
		if used := s.Stats().Used; used != 0 || s.runs.free != 4096 || len(s.translations) != 0 {
			t.Errorf("%s: in the end %d entries are in use, %d places are free, %d translations are there", name, used, s.runs.free, len(s.translations))
		}
	}
}

func TestRefusedShares(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	other := s.domain()
	stag := s.register(s.heap[:64], 0, LocalWrite|Bind)
	for name, c := range map[string]struct {
		stag STag
		of   PD
		r    Region
		is   error
	}{
		"another key":    {stag ^ 1, s.pd, Region{PD: other}, ErrSTag},
		"another domain": {stag, other, Region{PD: other}, ErrPD},
		"a window":       {s.window(Type1), s.pd, Region{PD: other}, ErrSTag},
		"no domain":      {stag, s.pd, Region{PD: 99}, ErrPD},
		"rights":         {stag, s.pd, Region{PD: other, Rights: RemoteWrite}, ErrRights},
		"around the top": {stag, s.pd, Region{PD: other, Start: math.MaxUint64 - 62}, ErrMemory},
	} {
		before := s.Stats().Used
		_, err := s.Share(c.stag, c.of, c.r)
		if rig.Says(t, err, c.is, ":"); s.Stats().Used != before {
			t.Errorf("%s: an entry was kept", name)
		}
	}
	if err := s.Invalidate(stag, s.pd); err != nil {
		t.Fatal(err)
	}
	_, err := s.Share(stag, s.pd, Region{PD: other})
	rig.Says(t, err, ErrSTag, "no valid region")
}

// A share either succeeds and has the memory, or fails, while the region is deregistered
// by another goroutine.
func TestShareAgainstDeregister(t *testing.T) {
	s, _, external := scattered(t, Config{Entries: 64}, 4)
	for range 2000 {
		stag := s.mustPages([][]byte{external[pageSize:], external[:pageSize]}, pageSize, 0, LocalWrite)
		var gone sync.WaitGroup
		gone.Go(func() {
			if err := s.Deregister(stag, s.pd); err != nil {
				t.Error(err)
			}
		})
		shared, err := s.Share(stag, s.pd, Region{PD: s.pd, Rights: RemoteRead})
		gone.Wait()
		if err != nil {
			continue
		}
		if mem, f := s.Check(Access{STag: shared, PD: s.pd, Right: RemoteRead, Len: 1}); f != OK || &mem[0] != &external[pageSize] {
			t.Fatal(f)
		}
		if err := s.Deregister(shared, s.pd); err != nil {
			t.Fatal(err)
		}
	}
	if used := s.Stats().Used; used != 0 || s.runs.free != s.runs.size {
		t.Errorf("%d entries and %d places are in use", used, s.runs.size-s.runs.free)
	}
}
