package afxdp

import "testing"

// TestFillLevel checks that the kernel has few chunks in copy mode. Their number
// doubles each time the kernel has used all of them.
func TestFillLevel(t *testing.T) {
	f := newFake(t, Config{RxFrames: 4096})
	defer f.close(t)
	use := func(n int) {
		t.Helper()
		for range n {
			if _, ok := f.fill.Next(); !ok {
				t.Fatalf("fewer than %d chunks to fill", n)
			}
		}
		f.fill.Release()
	}
	for _, c := range []struct{ use, want int }{
		{0, 512},     // at the start
		{100, 512},   // used chunks are replaced
		{511, 512},   // all but one were used: enough
		{512, 1024},  // all were used: too few
		{1024, 1949}, // 2048 are wanted, but only these are left
	} {
		use(c.use)
		f.refill()
		if got := f.Queue.fill.Pending(); got != c.want {
			t.Errorf("%d used: the kernel has %d chunks, want %d", c.use, got, c.want)
		}
	}
}

// TestFillLevelZeroCopy checks that the driver gets all chunks in zero-copy mode.
func TestFillLevelZeroCopy(t *testing.T) {
	f := newFake(t, Config{RxFrames: 2000})
	defer f.close(t)
	f.info.Mode = ModeZeroCopy
	f.refill()
	if got := f.Queue.fill.Pending(); got != 2000 {
		t.Errorf("the kernel has %d chunks, want 2000", got)
	}
}
