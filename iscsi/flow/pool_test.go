package flow

import (
	"sync"
	"testing"
)

// TestPool: buffers do not overlap, whoever takes them, and all come back.
func TestPool(t *testing.T) {
	p := NewPool(make([]byte, 4<<20))
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			var mine [][]byte
			for i := range 2000 {
				n := []int{1, 4096, 5000, 65536, 300000, 1 << 20}[(i+g)%6]
				b := p.Take(n)
				if b == nil || len(mine) > 3 {
					for _, m := range mine {
						for _, x := range []int{0, len(m) / 2, len(m) - 1} {
							if m[x] != byte(len(m)+g) {
								t.Errorf("another owner has written to a buffer of %d octets", len(m))
							}
						}
						p.Give(m)
					}
					mine = mine[:0]
				}
				if b == nil {
					continue
				}
				if len(b) != n {
					t.Errorf("%d octets, want %d", len(b), n)
				}
				for x := range b {
					b[x] = byte(n + g)
				}
				mine = append(mine, b)
			}
			for _, m := range mine {
				p.Give(m)
			}
		})
	}
	all.Wait()
	if p.Free() != p.Size() {
		t.Errorf("%d of %d octets are free", p.Free(), p.Size())
	}
	if p.Take(4<<20) == nil || p.Take(1) != nil {
		t.Error("a buffer of the whole pool")
	}
	if NewPool(make([]byte, 1<<20)).Take(2<<20) != nil {
		t.Error("a buffer that is larger than the pool")
	}
}
