package engine

import (
	"encoding/binary"
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
		id, err := d.Reserve(keyAt(0))
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
	a, _ := d.Reserve(keyAt(0))
	b, _ := d.Reserve(keyAt(0))
	if _, err := d.Reserve(keyAt(0)); !errors.Is(err, ErrFlowsFull) {
		t.Fatalf("third of two: %v", err)
	}
	d.Free(a)
	c, err := d.Reserve(keyAt(0))
	if err != nil || c.Index() != a.Index() || c == a {
		t.Fatalf("slot %d again: id %#x after %#x, %v", a.Index(), uint32(c), uint32(a), err)
	}
	if _, ok := d.owner(a); ok {
		t.Error("a freed id still has an owner")
	}
	if err := d.Move(b, 7); err != nil {
		t.Error(err)
	}
	if q, ok := d.owner(b); !ok || q != 7 {
		t.Errorf("owner %d %v, want 7", q, ok)
	}
	if q, ok := d.owner(c); !ok || q != noLane {
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

// keyAt returns the key of a flow from port n of a peer.
func keyAt(n int) (k bpf.FlowKey) {
	k.Family = 4
	k.Remote, k.Local = [16]byte{192, 0, 2, 1}, [16]byte{192, 0, 2, 2}
	binary.BigEndian.PutUint16(k.RemotePort[:], uint16(n))
	k.LocalPort = [2]byte{0x13, 0x89}
	return k
}

// Every open flow is found by its id and by its key, at its owner or, before it has
// one, at the lane that parks its segments; and none is found once it is freed.
func TestDirectoryFindsByIDAndKey(t *testing.T) {
	const n = 300
	d, err := NewDirectory(n)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]FlowID, n)
	for round := range 3 {
		for i := range ids {
			if ids[i], err = d.Reserve(keyAt(i)); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := d.Find(ids[i]); ok {
				t.Fatal("a flow that no lane parks yet is found")
			}
			d.parks(ids[i], Lane(i%7))
			d.parks(ids[i], 9) // another lane parks it already
			if i%2 == 0 {
				if err := d.Move(ids[i], Lane(100+i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, id := range ids {
			want := Lane(i % 7)
			if i%2 == 0 {
				want = Lane(100 + i)
			}
			key := keyAt(i)
			if k, at, ok := d.Find(id); !ok || k != key || at != want {
				t.Fatalf("round %d: Find of flow %d: key %v lane %d %v, want lane %d", round, i, k, at, ok, want)
			}
			if got, at, ok := d.ByKey(&key); !ok || got != id || at != want {
				t.Fatalf("round %d: ByKey of flow %d: id %#x lane %d %v, want %#x at lane %d", round, i, uint32(got), at, ok, uint32(id), want)
			}
		}
		for i, id := range ids {
			d.Free(id)
			key := keyAt(i)
			if _, _, ok := d.Find(id); ok {
				t.Fatalf("flow %d is found by its id after it was freed", i)
			}
			if _, _, ok := d.ByKey(&key); ok {
				t.Fatalf("flow %d is found by its key after it was freed", i)
			}
			if err := d.Move(id, 1); !errors.Is(err, ErrNoFlow) {
				t.Fatalf("Move of a flow that was freed: %v, want ErrNoFlow", err)
			}
		}
	}
}

// Readers look flows up while other flows come and go. They find every flow that stays,
// and each entry that they find is consistent.
func TestDirectoryReadersNeedNoLock(t *testing.T) {
	d, err := NewDirectory(64)
	if err != nil {
		t.Fatal(err)
	}
	stays, err := d.Reserve(keyAt(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Move(stays, 3); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20000 {
			var ids [20]FlowID
			for i := range ids {
				ids[i], _ = d.Reserve(keyAt(100 + i))
				_ = d.Move(ids[i], 5)
			}
			for _, id := range ids {
				d.Free(id)
			}
		}
	}()
	key := keyAt(1)
	for {
		select {
		case <-done:
			return
		default:
		}
		if k, at, ok := d.Find(stays); !ok || k != key || at != 3 {
			t.Fatalf("Find: %v %d %v", k, at, ok)
		}
		for i := range 20 {
			come := keyAt(100 + i)
			if id, at, ok := d.ByKey(&come); ok && (id == stays || at == 3) {
				t.Fatalf("ByKey of another flow: %#x at %d", uint32(id), at)
			}
		}
	}
}
