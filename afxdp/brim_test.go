package afxdp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/rig"
)

// sendSome puts n packets into the transmit ring and calls the kernel.
func (f *fake) sendSome(t *testing.T, n int) {
	t.Helper()
	frames := make([]port.Frame, n)
	if got := f.Take(frames); got != n {
		t.Fatalf("took %d frames, want %d", got, n)
	}
	for i := range frames {
		frames[i].Len = 100
	}
	if got := f.Send(frames); got != n {
		t.Fatalf("sent %d frames, want %d", got, n)
	}
	f.Free(frames)
	rig.Must(t, f.Flush())
}

// TestBrim checks that the first packet that the driver drops sets the limit. When the
// limit was reached, there is no room until several slots are free.
func TestBrim(t *testing.T) {
	f := newFake(t, Config{})
	defer f.close(t)
	var with []unix.XDPDesc // the packets that the device holds
	takes := func(n int) func() {
		return func() { with = append(with, f.consume(n)...) }
	}
	completes := func(n int) {
		for _, d := range with[:n] {
			f.complete(d.Addr)
		}
		with = with[n:]
	}
	if got := f.Room(); got != defaultRing {
		t.Fatalf("room for %d packets, want %d: nothing is known", got, defaultRing)
	}
	// The device has 240 slots, so it drops the 241st of 300 packets. The call ends
	// there, and no other call follows.
	f.answers = []answer{{unix.EBUSY, takes(240)}, {0, takes(60)}}
	f.sendSome(t, 300)
	if f.count.Lost != 1 || len(f.calls) != 1 {
		t.Fatalf("%d packets lost in %d calls, want 1 in 1", f.count.Lost, len(f.calls))
	}
	if got := f.Room(); got != 0 {
		t.Errorf("room for %d packets in a full queue", got)
	}
	// 60 packets wait in the ring. From now on the limit is 210, which is 240 less an
	// eighth.
	for _, c := range []struct{ complete, want int }{
		{90, 0},    // the kernel has 210
		{25, 0},    // 185: too few slots are free
		{1, 26},    // 184: an eighth is free
		{20, 46},   // as many slots as are free
		{104, 150}, // 60 are left, those in the ring
	} {
		completes(c.complete)
		if got := f.Room(); got != c.want {
			t.Errorf("%d more have left: room for %d packets, want %d", c.complete, got, c.want)
		}
	}
	rig.Must(t, f.Flush())
	if f.tx.Ready() != 0 {
		t.Errorf("%d packets are left in the ring", f.tx.Ready())
	}
}

// TestBrimLearns checks that a loss lowers the limit, and that many packets without a
// loss raise it.
func TestBrimLearns(t *testing.T) {
	var b brim
	b.overflown(leastBrim - 1) // another reason for the loss, perhaps no carrier
	if b.most != 0 || b.reached(1<<20) {
		t.Errorf("a loss with hardly a packet in the device: most is %d", b.most)
	}
	b.completed(brimAfter)
	if b.most != 0 {
		t.Errorf("without a loss: most is %d", b.most)
	}
	for _, c := range []struct{ with, want int }{
		{256, 224}, {240, 210}, {leastBrim, leastBrim}, {300, 263},
	} {
		b.overflown(c.with)
		if b.most != c.want {
			t.Errorf("a loss with %d packets: most is %d, want %d", c.with, b.most, c.want)
		}
	}
	b.completed(brimAfter - 1)
	b.completed(1)
	b.completed(brimAfter - 1)
	if b.most != 264 {
		t.Errorf("many packets without a loss: most is %d, want 264", b.most)
	}
	b.overflown(256)
	b.completed(1)
	if b.most != 224 {
		t.Errorf("one packet after a loss: most is %d, want 224", b.most)
	}
}
