package iscsi

import "testing"

// TestLongest: one READ or WRITE has whole blocks, and at least one, whatever the target says
// of its unit.
func TestLongest(t *testing.T) {
	for _, c := range []struct {
		block, limit uint32
		want         int
	}{
		{512, 0, 1 << 20}, {4096, 8, 32 << 10}, {520, 0, 1<<20 - 1<<20%520}, {1 << 20, 0xffffffff, 1 << 20}, {1, 1, 1},
		{1<<20 + 1, 0, 0}, {0xffffffff, 1, 0},
	} {
		if got, err := longest(c.block, c.limit); got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("blocks of %d, at most %d: %d, %v, want %d", c.block, c.limit, got, err, c.want)
		}
	}
}
