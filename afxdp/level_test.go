package afxdp

import "testing"

// TestFillLevel: in copy mode the kernel has few chunks, and gets twice as many
// each time that it has used them all up.
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
		{0, 512},     // to begin with
		{100, 512},   // what was used is replaced
		{511, 512},   // all but one: enough
		{512, 1024},  // all: too few
		{1024, 1949}, // 2048, but no more are left
	} {
		use(c.use)
		f.refill()
		if got := f.Queue.fill.Pending(); got != c.want {
			t.Errorf("%d used: the kernel has %d chunks, want %d", c.use, got, c.want)
		}
	}
}

// TestFillLevelZeroCopy: a driver that fills the chunks itself gets all.
func TestFillLevelZeroCopy(t *testing.T) {
	f := newFake(t, Config{RxFrames: 2000})
	defer f.close(t)
	f.info.Mode = ModeZeroCopy
	f.refill()
	if got := f.Queue.fill.Pending(); got != 2000 {
		t.Errorf("the kernel has %d chunks, want 2000", got)
	}
}
