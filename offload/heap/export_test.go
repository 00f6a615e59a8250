package heap

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/pack"
)

// again opens the file of a heap once more, as another process gets it.
func again(t *testing.T, h *Heap) *os.File {
	t.Helper()
	fd, err := unix.Dup(int(h.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "heap")
}

// TestHeapMoves: the adopted heap has the same octets at the same offsets, keeps what was
// handed out, and hands out the rest, zeroed.
func TestHeapMoves(t *testing.T) {
	from, err := NewShared(8 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	a, pa, _ := from.Alloc(PageSize + 1)
	b, pb, _ := from.Alloc(10)
	c, pc, _ := from.Alloc(PageSize)
	copy(a, "first")
	copy(b, "between")
	copy(c, "third")
	pa.Hold()
	if err := pb.Release(); err != nil {
		t.Fatal(err)
	}
	state, err := from.Export()
	if err != nil {
		t.Fatal(err)
	}
	to, err := Inherit(again(t, from))
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Restore(state); err != nil {
		t.Fatal(err)
	}
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	if to.Left() != from.Size()-3*PageSize {
		t.Errorf("%d octets left", to.Left())
	}
	mem, p, err := to.Hand(from.Offset(a), uint64(len(a)))
	if err != nil || !bytes.HasPrefix(mem, []byte("first")) || len(mem) != len(a) {
		t.Fatalf("%q: %v", mem[:5], err)
	}
	third, p3, err := to.Hand(from.Offset(c)+1, 4)
	if err != nil || string(third) != "hird" {
		t.Fatalf("%q: %v", third, err)
	}
	third[0] = 'H'
	if string(c[:5]) != "tHird" {
		t.Error("the two heaps do not share their memory")
	}
	if _, _, err := to.Hand(from.Offset(b), 10); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("a part that was released: %v", err)
	}
	if _, _, err := to.Hand(from.Offset(c), PageSize+1); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("beyond its part: %v", err)
	}
	if mem, _, err = to.Alloc(PageSize); err != nil || !bytes.Equal(mem, make([]byte, PageSize)) {
		t.Errorf("the part between: %v", err)
	}
	for i, p := range []*Part{p, p, p3} {
		if left := to.Left(); p.Release() != nil || (to.Left() == left) != (i == 0) {
			t.Errorf("release %d: %d octets left, and %d before", i, to.Left(), left)
		}
	}
	for _, p := range []*Part{pa, pa, pc} {
		p.Release()
	}
	if err := to.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeapRefused: states that contradict themselves or the heap.
func TestHeapRefused(t *testing.T) {
	from, err := NewShared(4 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for name, s := range map[string]state{
		"another size":        {size: PageSize},
		"parts that overlap":  {size: 4 * PageSize, fresh: 4 * PageSize, parts: []partState{{0, 2 * PageSize, 1}, {PageSize, PageSize, 1}}},
		"half a page":         {size: 4 * PageSize, fresh: 4 * PageSize, parts: []partState{{0, PageSize / 2, 1}}},
		"beyond what is used": {size: 4 * PageSize, fresh: PageSize, parts: []partState{{0, 2 * PageSize, 1}}},
		"no region":           {size: 4 * PageSize, fresh: PageSize, parts: []partState{{0, PageSize, 0}}},
	} {
		to, err := Inherit(again(t, from))
		if err != nil {
			t.Fatal(err)
		}
		octets, err := stateFormat.Encode(nil, s.code)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Restore(octets); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		to.Close()
	}
}
