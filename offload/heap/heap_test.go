package heap

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// Parts of the heap never overlap and are zero. When all are released, the heap is one
// free part again.
func TestHeap(t *testing.T) {
	const size = 64 * PageSize
	rapid.Check(t, func(t *rapid.T) {
		h, err := New(size)
		if err != nil {
			t.Fatal(err)
		}
		var held [][]byte
		var parts []*Part
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				if err := parts[i].Release(); err != nil {
					t.Fatal(err)
				}
				held, parts = slices.Delete(held, i, i+1), slices.Delete(parts, i, i+1)
				continue
			}
			n := rapid.IntRange(1, 20*PageSize).Draw(t, "octets")
			mem, p, err := h.Alloc(uint64(n))
			if err != nil {
				continue
			}
			if len(mem) != n || cap(mem) != n || h.offset(mem)%PageSize != 0 {
				t.Fatalf("asked for %d, got %d of %d at %d", n, len(mem), cap(mem), h.offset(mem))
			}
			for i, b := range mem {
				if b != 0 {
					t.Fatalf("octet %d is %d: not zero, or somebody else's", i, b)
				}
				mem[i] = byte(len(held) + 1)
			}
			held, parts = append(held, mem), append(parts, p)
		}
		for i, mem := range held {
			for _, b := range mem {
				if b != mem[0] {
					t.Fatal("parts overlap")
				}
			}
			if err := parts[i].Release(); err != nil {
				t.Fatal(err)
			}
		}
		if len(h.free) != 1 || h.Left() != size {
			t.Fatalf("left: %v", h.free)
		}
		_, all, err := h.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(h.Close(), all.Release()); err != nil {
			t.Fatal(err)
		}
	})
}

// A part that is handed out stays mapped after Close, and the mapping ends with the
// last part.
func TestHeapOutlived(t *testing.T) {
	h, err := New(4 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	var held [2][]byte
	var parts [2]*Part
	for i := range held {
		if held[i], parts[i], err = h.Alloc(PageSize); err != nil {
			t.Fatal(err)
		}
		held[i][0] = byte(i + 1)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Alloc(1); !errors.Is(err, ErrFull) {
		t.Errorf("a heap that is closed hands out memory: %v", err)
	}
	for i := range held {
		if !mapped(t, held[i]) || held[i][0] != byte(i+1) {
			t.Fatalf("part %d went with the heap", i)
		}
		if err := parts[i].Release(); err != nil {
			t.Fatal(err)
		}
	}
	if mapped(t, held[0]) {
		t.Error("the heap is still mapped, with nothing handed out")
	}
}

// mapped reports whether mem is in the process's address space.
func mapped(t *testing.T, mem []byte) bool {
	t.Helper()
	err := unix.Msync(mem[:PageSize], unix.MS_ASYNC)
	if err != nil && err != unix.ENOMEM {
		t.Fatal(err)
	}
	return err == nil
}
