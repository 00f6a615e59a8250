package tpt

import (
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

func TestQuota(t *testing.T) {
	s := newStage(t, Config{Entries: 16, PerPD: 3})
	var stags []STag
	for range 3 {
		stags = append(stags, s.register(s.heap[:8], 0, 0))
	}
	_, err := s.Register(Region{PD: s.pd, Memory: s.heap})
	rig.Says(t, err, ErrQuota, "3 entries")
	if _, err := s.Register(Region{PD: s.domain(), Memory: s.heap}); err != nil {
		t.Errorf("another domain: %v", err)
	}
	if err := s.Deregister(stags[1], s.pd); err != nil {
		t.Fatal(err)
	}
	s.register(s.heap[:8], 0, 0)
}

// One protection domain cannot take all places for pages. Each of its regions over a page
// list counts, also a region that shares the list of another domain.
func TestPagesPerPD(t *testing.T) {
	s, heap, _ := scattered(t, Config{Entries: 64, Pages: 1024, PagesPerPD: 5}, 8)
	list := func(n int) (pages [][]byte) {
		for i := range n {
			pages = append(pages, heap[i*pageSize:][:pageSize])
		}
		return pages
	}
	other := s.domain()
	first := s.mustPages(list(3), pageSize, 0, RemoteRead)
	r := Region{PD: s.pd, Pages: list(3), PageSize: pageSize}
	_, err := s.Register(r)
	rig.Says(t, err, ErrQuota, "takes 3 places", "3 of its 5", "larger pages")
	shared := s.share(first, Region{PD: other})
	r.PD = other
	_, err = s.Register(r)
	rig.Says(t, err, ErrQuota, "3 of its 5")
	_, err = s.Share(first, s.pd, Region{PD: s.pd})
	rig.Says(t, err, ErrQuota, "3 of its 5")

	reserved, err := s.Reserve(s.pd, 0)
	rig.Must(t, err)
	mapped, err := s.MapPages(reserved, s.pd, list(2), pageSize)
	rig.Must(t, err)
	next, err := s.MapPages(mapped, s.pd, list(3), pageSize)
	rig.Says(t, err, ErrQuota, "3 of its 5")
	if next == mapped || next.Index() != mapped.Index() {
		t.Fatalf("%v after %v", next, mapped)
	}
	if f := s.StartRegister(&Registration{STag: next, PD: s.pd, Len: 1}); f != NoSpace {
		t.Errorf("after a failed MapPages: %v", f)
	}
	next, err = s.MapPages(next, s.pd, list(2), pageSize)
	rig.Must(t, err)

	rig.Must(t, s.Deregister(first, s.pd)) // the share of the other domain remains used
	rig.Must(t, s.Deregister(next, s.pd))
	whole := s.mustPages(list(5), pageSize, 0, 0)
	_, err = s.Register(r)
	rig.Says(t, err, ErrQuota, "3 of its 5")
	rig.Must(t, s.Deregister(shared, other))
	_, err = s.Register(r)
	rig.Must(t, err)
	rig.Must(t, s.Deregister(whole, s.pd))
	rig.Must(t, s.FreePD(s.pd))
	if s.runs.free != 1021 {
		t.Errorf("%d places are free", s.runs.free)
	}
}
