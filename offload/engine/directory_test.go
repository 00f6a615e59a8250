package engine

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/bpf"
)

func TestDirectoryGivesEachIDOnce(t *testing.T) {
	d, err := NewDirectory(4)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[FlowID]bool{}
	for range 4 * 5000 { // more than there are generations
		id, err := d.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		if id == 0 || id.Index() >= 4 {
			t.Fatalf("id %#x", uint32(id))
		}
		if len(seen) < 4*4095 && seen[id] {
			t.Fatalf("id %#x given out again after %d ids", uint32(id), len(seen))
		}
		seen[id] = true
		d.Free(id)
		d.Free(id) // a second time changes nothing
	}
	if len(seen) != 4*4095 {
		t.Errorf("%d different ids, want every generation but 0 of 4 slots: %d", len(seen), 4*4095)
	}
}

func TestDirectoryFull(t *testing.T) {
	d, _ := NewDirectory(2)
	a, _ := d.Reserve()
	b, _ := d.Reserve()
	if _, err := d.Reserve(); !errors.Is(err, ErrFlowsFull) {
		t.Fatalf("third of two: %v", err)
	}
	d.Free(a)
	c, err := d.Reserve()
	if err != nil || c.Index() != a.Index() || c == a {
		t.Fatalf("slot %d again: id %#x after %#x, %v", a.Index(), uint32(c), uint32(a), err)
	}
	if _, ok := d.owner(a); ok {
		t.Error("a freed id still has an owner")
	}
	d.Assign(b, 7)
	if q, ok := d.owner(b); !ok || q != 7 {
		t.Errorf("owner %d %v, want 7", q, ok)
	}
	if q, ok := d.owner(c); !ok || q != bpf.NoOwner {
		t.Errorf("owner %d %v, want none yet", q, ok)
	}
	if _, ok := d.owner(FlowID(99)); ok {
		t.Error("an index out of range has an owner")
	}
	for _, n := range []int{0, -1, MaxFlows + 1} {
		if _, err := NewDirectory(n); err == nil {
			t.Errorf("directory of %d accepted", n)
		}
	}
}
