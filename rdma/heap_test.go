package rdma

import (
	"testing"

	"pgregory.net/rapid"
)

// Parts of the heap never overlap, are zero, and all of it is one part again in
// the end.
func TestHeap(t *testing.T) {
	const size = 64 * page
	rapid.Check(t, func(t *rapid.T) {
		h, err := newHeap(size)
		if err != nil {
			t.Fatal(err)
		}
		defer h.close()
		var held [][]byte
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				h.release(held[i])
				held = append(held[:i], held[i+1:]...)
				continue
			}
			n := rapid.IntRange(1, 20*page).Draw(t, "octets")
			mem, err := h.alloc(uint64(n))
			if err != nil {
				continue
			}
			if len(mem) != n || cap(mem) != n || h.offset(mem)%page != 0 {
				t.Fatalf("asked for %d, got %d of %d at %d", n, len(mem), cap(mem), h.offset(mem))
			}
			for i, b := range mem {
				if b != 0 {
					t.Fatalf("octet %d is %d: not zero, or somebody else's", i, b)
				}
				mem[i] = byte(len(held) + 1)
			}
			held = append(held, mem)
		}
		for _, mem := range held {
			for _, b := range mem {
				if b != mem[0] {
					t.Fatal("parts overlap")
				}
			}
			h.release(mem)
		}
		if len(h.free) != 1 || h.left() != size {
			t.Fatalf("left: %v", h.free)
		}
		if _, err := h.alloc(size); err != nil {
			t.Fatal(err)
		}
	})
}
