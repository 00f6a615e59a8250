package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestFolds compares each way to fold that the processor has with the standard library. Only
// the widest one is in use.
func TestFolds(t *testing.T) {
	b := make([]byte, 8192)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for _, w := range []struct {
		name string
		can  bool
		fold func(uint32, []byte) uint32
	}{
		{"512 bits", canFold512, func(state uint32, b []byte) uint32 { return foldWith(&folds, state, b) }},
		{"256 bits", canFold256, func(state uint32, b []byte) uint32 { return foldWith256(&folds256, state, b) }},
	} {
		if !w.can {
			t.Logf("this processor cannot fold %s", w.name)
			continue
		}
		for n := foldLeast; n <= 4096; n++ {
			at := n % 67
			before := r.Uint32()
			got := ^w.fold(^before, b[at:at+n])
			if want := crc32.Update(before, castagnoli, b[at:at+n]); got != want {
				t.Fatalf("%s: %d octets at %d after %#x: %#x, want %#x", w.name, n, at, before, got, want)
			}
		}
	}
}
