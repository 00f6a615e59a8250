package afxdp_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

// scant is a configuration in which pools and rings run out and wrap soon.
var scant = afxdp.Config{RxFrames: 64, TxFrames: 48, RxRing: 32, TxRing: 32, FillRing: 64, CompRing: 64}

// TestBothWays moves frames of all sizes between two Queues in both directions at the
// same time. Pools and rings run out all the time.
func TestBothWays(t *testing.T) {
	for _, c := range []struct {
		name string
		mtu  int
		conf afxdp.Config
	}{
		{"roomy 4096", 3506, afxdp.Config{}},
		{"roomy 2048", 1500, afxdp.Config{FrameSize: 2048}},
		{"scant 4096", 3506, scant},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := netns.XDPPair(t, pair.Config{MTU: c.mtu})
			var ends [2]*end
			for side := range ends {
				s := steer(t, p, pair.Side(side), false)
				ends[side] = &end{q: openIn(t, p, pair.Side(side), c.conf), limit: c.mtu + 14}
				s.to(t, 0, ends[side].q.FD())
			}
			for ends[0].got.count < 20_000 || ends[1].got.count < 20_000 {
				for _, e := range ends {
					rig.Must(t, e.step())
				}
			}
			settle(t, ends[0], ends[1])
			for side, e := range ends {
				accounted(t, e, ends[1-side])
			}
		})
	}
}

// settle waits until no frame is in flight.
func settle(t *testing.T, ends ...*end) {
	t.Helper()
	for _, e := range ends {
		rig.Eventually(t, "all is transmitted", func() bool {
			rig.Must(t, e.q.Flush())
			all := make([]port.Frame, e.q.Limits().TxFrames)
			n := e.q.Take(all)
			e.q.Free(all[:n])
			return n == len(all)
		})
	}
	for _, e := range ends {
		for quiet := 0; quiet < 20; quiet++ {
			n, err := receive(e.q, e.got.see)
			rig.Must(t, err)
			if n > 0 {
				quiet = 0
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// accounted checks that the counters explain every frame from far to e. The counters
// may be higher, because the kernel sends frames of its own.
func accounted(t *testing.T, e, far *end) {
	t.Helper()
	s, err := e.q.Stats()
	rig.Must(t, err)
	f, err := far.q.Stats()
	rig.Must(t, err)
	if s.Rx < uint64(e.got.count) || s.RxBad+s.Misused+s.Kernel.TxInvalid+s.Kernel.RxInvalid != 0 {
		t.Errorf("%d seen: %+v", e.got.count, s)
	}
	missing := far.sent - uint64(e.got.count)
	counted := f.Lost + s.Kernel.RxDropped + s.Kernel.RxRingFull + s.Kernel.FillEmpty
	if missing > counted || f.Tx != far.sent || f.Completed != f.Tx {
		t.Errorf("%d sent, %d arrived, %d counted as lost: %+v, %+v", far.sent, e.got.count, counted, f, s)
	}
}

// end is a queue with the numbers of the frames that it has sent and received.
type end struct {
	q     *afxdp.Queue
	limit int // octets of the longest frame
	sent  uint64
	got   rising
}

func (e *end) step() error {
	if _, err := receive(e.q, e.got.see); err != nil {
		return err
	}
	n, err := transmit(e.q, e.sent, 64, func(i uint64) int { return sizeOf(i, e.limit) })
	e.sent += uint64(n)
	return err
}

// TestNothingIsLostAtEase sends one frame at a time. Every frame must arrive.
func TestNothingIsLostAtEase(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{MTU: 3506})
	s := steer(t, p, pair.B, false)
	tx, rx := openIn(t, p, pair.A, scant), openIn(t, p, pair.B, scant)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	var got rising
	for number := range uint64(3520 - leastLen + 1) { // every size up to the limit
		n, err := transmit(tx, number, 1, func(i uint64) int { return leastLen + int(i) })
		if n != 1 || err != nil {
			t.Fatalf("frame %d: sent %d, %v", number, n, err)
		}
		rig.Eventually(t, "the frame arrives", func() bool {
			_, err := receive(rx, got.see)
			rig.Must(t, err)
			return got.next == number+1
		})
	}
	if uint64(got.count) != got.next {
		t.Errorf("%d of %d frames", got.count, got.next)
	}
}

// TestRecord checks that the record is directly in front of the packet, and that
// Recycle wipes it.
func TestRecord(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, true)
	tx, rx := openIn(t, p, pair.A, scant), openIn(t, p, pair.B, scant)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	for number := range uint64(200) {
		_, err := transmit(tx, number, 1, func(uint64) int { return 100 })
		rig.Must(t, err)
		var f [1]port.Frame
		rig.Eventually(t, "a frame arrives", func() bool { return rx.Receive(f[:]) == 1 })
		if at := f[0].Addr % 4096; at != 256 {
			t.Fatalf("the packet begins at octet %d", at)
		}
		r := rx.Record(f[0])
		for _, at := range []int{0, port.RecordLen - 8} {
			if got := binary.NativeEndian.Uint64(r[at:]); got != mark {
				t.Fatalf("record at %d: %#x", at, got)
			}
		}
		rx.Recycle(f[:])
		if got := binary.NativeEndian.Uint64(r); got != 0 {
			t.Fatalf("record after Recycle: %#x", got)
		}
	}
}

// TestTxPoolExhausted checks that transmission does not return frames that the caller
// holds, and returns all others.
func TestTxPoolExhausted(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	steer(t, p, pair.B, false)
	q := openIn(t, p, pair.A, scant)
	all := make([]port.Frame, 100)
	if n := q.Take(all); n != 48 {
		t.Fatalf("%d of 48 frames", n)
	}
	if n := q.Take(all[48:]); n != 0 {
		t.Fatalf("%d frames from an empty pool", n)
	}
	for i := range all[:48] {
		all[i].Len = 60
		write(q.Bytes(all[i]), uint64(i))
	}
	if n := q.Send(all[:48]); n != 32 {
		t.Fatalf("%d frames in a ring of 32", n)
	}
	if q.Room() != 0 {
		t.Error("room in a full ring")
	}
	rig.Must(t, q.Flush())
	rig.Eventually(t, "all 32 are completed", func() bool {
		for _, f := range all[:32] {
			if q.InFlight(f) {
				return false
			}
		}
		return q.Room() == 32
	})
	if n := q.Take(all[48:]); n != 0 {
		t.Fatalf("%d frames although the caller holds all", n)
	}
	// The same frame is sent again, as a segment is.
	if n := q.Send(all[:2]); n != 2 || !q.InFlight(all[0]) {
		t.Fatalf("%d frames sent again", n)
	}
	q.Free(all[:48])
	rig.Must(t, q.Flush())
	rig.Eventually(t, "the pool is whole", func() bool {
		n := q.Take(all)
		q.Free(all[:n])
		return n == 48
	})
}

// TestRxPoolExhausted checks that the kernel drops and counts frames while the caller
// holds every chunk. Afterwards frames arrive again.
func TestRxPoolExhausted(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, false)
	tx, rx := openIn(t, p, pair.A, afxdp.Config{}), openIn(t, p, pair.B, scant)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	number := uint64(0)
	send := func() {
		n, err := transmit(tx, number, 8, func(uint64) int { return 60 })
		rig.Must(t, err)
		number += uint64(n)
	}
	hoard := make([]port.Frame, 0, 64)
	rig.Eventually(t, "all 64 chunks are with the caller", func() bool {
		send()
		n := rx.Receive(hoard[len(hoard):cap(hoard)])
		hoard = hoard[:len(hoard)+n]
		return len(hoard) == 64
	})
	rig.Eventually(t, "the kernel finds no chunk", func() bool {
		send()
		s, err := rx.Stats()
		rig.Must(t, err)
		return s.Kernel.FillEmpty > 0
	})
	if n := rx.Receive(make([]port.Frame, 1)); n != 0 {
		t.Fatalf("%d frames received without a chunk", n)
	}
	var last uint64
	for _, f := range hoard {
		if n, ours, err := read(rx.Bytes(f)); err != nil {
			t.Fatal(err)
		} else if ours {
			last = n
		}
	}
	rx.Recycle(hoard)
	got := rising{next: last + 1}
	rig.Eventually(t, "frames arrive again", func() bool {
		_, err := receive(rx, got.see)
		rig.Must(t, err)
		send()
		return got.count > 100
	})
}

// TestLinkDownAndUp checks the error while the queue's own end is down.
func TestLinkDownAndUp(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, false)
	tx, rx := openIn(t, p, pair.A, scant), openIn(t, p, pair.B, scant)
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	for _, side := range []pair.Side{pair.A, pair.B} {
		netns.In(t, p, side, func() error { return netns.SetLink(p.Ends[side].Name, false) })
		number := uint64(0)
		var down error
		for range 20 {
			n, err := transmit(tx, number, 1, func(uint64) int { return 60 })
			number += uint64(n)
			down = errors.Join(down, err)
		}
		if errors.Is(down, afxdp.ErrLinkDown) != (side == pair.A) || errors.Is(down, unix.ENETDOWN) != (side == pair.A) {
			t.Errorf("side %v down: %v", side, down)
		}
		if err := rx.Wait(time.Millisecond); err != nil {
			t.Errorf("side %v down: Wait: %v", side, err)
		}
		netns.In(t, p, side, func() error { return netns.SetLink(p.Ends[side].Name, true) })
		var got rising
		rig.Eventually(t, "frames arrive again", func() bool {
			n, err := transmit(tx, number, 4, func(uint64) int { return 60 })
			rig.Must(t, err)
			number += uint64(n)
			_, err = receive(rx, got.see)
			rig.Must(t, err)
			return got.next > 20+8
		})
	}
	s2, err := tx.Stats()
	rig.Must(t, err)
	if s2.Lost < 20 {
		t.Errorf("%d counted as lost while the far end was down, want 20", s2.Lost)
	}
}

// TestInterfaceRemoved checks that every method reports the removal with ErrGone.
func TestInterfaceRemoved(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	q := openIn(t, p, pair.A, scant)
	waited := make(chan error)
	go func() { // the queue's goroutine, which is asleep
		waited <- q.Wait(-1)
	}()
	rig.Must(t, p.Close())
	select {
	case err := <-waited:
		if !errors.Is(err, afxdp.ErrGone) || !errors.Is(err, unix.ENXIO) {
			t.Errorf("Wait: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Wait sleeps on")
	}
	if _, err := transmit(q, 0, 1, func(uint64) int { return 60 }); !errors.Is(err, afxdp.ErrGone) {
		t.Errorf("Flush: %v", err)
	}
	rig.Must(t, q.Close())
}

// TestQueues checks that a queue can read the frames of another queue.
func TestQueues(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{Queues: 2})
	size, err := scant.RegionSize()
	rig.Must(t, err)
	a, err := afxdp.NewArena(2 * size)
	rig.Must(t, err)
	var q [2]*afxdp.Queue
	for i := range q {
		c := scant
		c.Queue, c.Lane = uint16(i), port.Lane(i)
		r, err := a.Cut(size)
		rig.Must(t, err)
		q[i], err = tryOpen(p, pair.A, c, r)
		rig.Must(t, err)
	}
	var f [1]port.Frame
	if q[1].Take(f[:]) != 1 || f[0].Home != 1 {
		t.Fatalf("frame %+v", f[0])
	}
	f[0].Len = 100
	write(q[1].Bytes(f[0]), 42)
	if n, ours, err := read(q[0].Bytes(f[0])); n != 42 || !ours || err != nil {
		t.Errorf("through queue 0: %d %v %v", n, ours, err)
	}
	rig.Must(t, a.Close())
	rig.Must(t, q[0].Close())
	if n, ours, err := read(q[1].Bytes(f[0])); n != 42 || !ours || err != nil { // the open queue keeps the arena
		t.Errorf("after the other's end: %d %v %v", n, ours, err)
	}
	rig.Must(t, q[1].Close())
}

func TestHundredCycles(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, false)
	peer := openIn(t, p, pair.A, scant)
	a, r := newRegion(t, scant)
	for i := range 100 {
		q, err := tryOpen(p, pair.B, scant, r)
		if err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		s.to(t, 0, q.FD())
		if _, err := transmit(peer, uint64(i), 1, func(uint64) int { return 60 }); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 { // uses the queue, and leaves frames held and in flight
			var got rising
			rig.Eventually(t, "a frame arrives", func() bool {
				_, err := receive(q, got.see)
				rig.Must(t, err)
				return got.count > 0
			})
			_, err := transmit(q, 0, 8, func(uint64) int { return 60 })
			rig.Must(t, err)
			q.Take(make([]port.Frame, 3))
		}
		rig.Must(t, q.Close())
		rig.Must(t, q.Close())
	}
	rig.Must(t, a.Close())
}

func TestOpenErrors(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	first := openIn(t, p, pair.A, scant)
	for _, c := range []struct {
		name string
		conf afxdp.Config
		side pair.Side
		is   error
		says string
	}{
		{"in use", scant, pair.A, unix.EBUSY, "queue in use"},
		{"no such queue", with(scant, func(c *afxdp.Config) { c.Queue = 7 }), pair.B, unix.EINVAL, "ethtool -l"},
		{"zero copy", with(scant, func(c *afxdp.Config) { c.ZeroCopy = afxdp.ZeroCopyRequire }), pair.B, unix.EOPNOTSUPP, "zero copy is required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r := newRegion(t, c.conf)
			q, err := tryOpen(p, c.side, c.conf, r)
			if err == nil {
				q.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), p.Ends[c.side].Name) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
		})
	}
	if i := first.Info(); i.Mode != afxdp.ModeCopy || i.NoZeroCopy == nil || first.Mode().String() != "copy" {
		t.Errorf("on a veth pair: %+v", i)
	}
	t.Run("no such interface", func(t *testing.T) {
		_, r := newRegion(t, scant)
		for says, c := range map[string]afxdp.Config{
			"no such network interface": with(scant, func(c *afxdp.Config) { c.IfName = "nosuch0" }),
			"in this network namespace": with(scant, func(c *afxdp.Config) { c.IfName, c.Ifindex = "nosuch0", 1<<30 }),
			"Config.Ifindex":            scant,
		} {
			if _, err := afxdp.Open(c, r); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("error %v, want %q", err, says)
			}
		}
	})
}

func with(c afxdp.Config, change func(*afxdp.Config)) afxdp.Config {
	change(&c)
	return c
}

// TestClosed checks that the methods of a closed queue return nothing and do no harm.
func TestClosed(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	q := openIn(t, p, pair.A, scant)
	rig.Must(t, q.Close())
	var f [4]port.Frame
	if q.Receive(f[:])+q.Take(f[:])+q.Send(nil) != 0 {
		t.Error("a closed queue moves frames")
	}
	if err := q.Flush(); !errors.Is(err, afxdp.ErrClosed) {
		t.Errorf("Flush: %v", err)
	}
	if err := q.Wait(-1); !errors.Is(err, afxdp.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	q.Wake()
	if _, err := q.Stats(); err != nil {
		t.Error(err)
	}
	if q.FD() != -1 {
		t.Error("a closed queue has a descriptor")
	}
}

// TestNoAllocation checks that the data path does not allocate.
func TestNoAllocation(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, true)
	tx, rx := openIn(t, p, pair.A, afxdp.Config{}), openIn(t, p, pair.B, afxdp.Config{})
	s.to(t, 0, rx.FD())
	rx.Receive(nil)
	var lent, got [32]port.Frame
	seen := 0
	allocs := testing.AllocsPerRun(300, func() {
		n := min(tx.Take(lent[:]), tx.Room())
		for i := range lent[:n] {
			lent[i].Len = 200
			write(tx.Bytes(lent[i]), 1)
		}
		tx.Send(lent[:n])
		tx.InFlight(lent[0])
		tx.Free(lent[:n])
		if err := tx.Flush(); err != nil {
			t.Error(err)
		}
		if err := rx.Wait(time.Millisecond); err != nil {
			t.Error(err)
		}
		n = rx.Receive(got[:])
		for _, f := range got[:n] {
			seen += len(rx.Bytes(f)) + len(rx.Record(f))
		}
		rx.Recycle(got[:n])
		tx.Wake()
		if err := tx.Wait(time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	if allocs != 0 || seen < 300*200 {
		t.Errorf("%v allocations per round, %d octets seen", allocs, seen)
	}
}
