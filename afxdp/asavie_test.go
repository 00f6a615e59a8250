package afxdp_test

import (
	"testing"

	"github.com/asavie/xdp"
	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// foreign is an AF_XDP socket of another implementation.
type foreign struct {
	x    *xdp.Socket
	sent uint64
	got  rising
}

func openForeign(t testing.TB, p *pair.Pair, side pair.Side) *foreign {
	t.Helper()
	var f foreign
	rig.Must(t, p.Do(side, func() (err error) {
		f.x, err = xdp.NewSocket(p.Ends[side].Index, 0, &xdp.SocketOptions{
			NumFrames: 512, FrameSize: 4096,
			FillRingNumDescs: 256, CompletionRingNumDescs: 256,
			RxRingNumDescs: 256, TxRingNumDescs: 256,
		})
		return err
	}))
	t.Cleanup(func() { rig.Must(t, f.x.Close()) })
	return &f
}

// receive takes the frames that have arrived.
func (f *foreign) receive() error {
	if n := f.x.NumReceived(); n > 0 {
		for _, d := range f.x.Receive(n) {
			number, ours, err := read(f.x.GetFrame(d))
			if ours && err == nil {
				err = f.got.see(number)
			}
			if err != nil {
				return err
			}
		}
	}
	// Half of the frames are for receiving.
	if room := min(f.x.NumFreeFillSlots(), 256-f.x.NumFilled()); room > 0 {
		f.x.Fill(f.x.GetDescs(room))
	}
	return nil
}

// transmit sends up to n frames and returns how many it sent.
func (f *foreign) transmit(n int, size func(uint64) int) int {
	if done := f.x.NumCompleted(); done > 0 {
		f.x.Complete(done)
	}
	n = min(n, f.x.NumFreeTxSlots(), 256-f.x.NumTransmitted())
	descs := f.x.GetDescs(n)
	for i := range descs {
		descs[i].Len = uint32(size(f.sent + uint64(i)))
		write(f.x.GetFrame(descs[i]), f.sent+uint64(i))
	}
	n = f.x.Transmit(descs)
	f.sent += uint64(n)
	return n
}

// TestAgainstAsavie moves frames in both directions between a Queue and another
// implementation. It checks every octet.
func TestAgainstAsavie(t *testing.T) {
	const mtu = 3506
	total := uint64(500_000) // in each direction
	if testing.Short() {
		total = 50_000
	}
	for _, c := range []struct {
		name  string
		conf  afxdp.Config
		total uint64
		size  func(uint64) int
	}{
		{"small frames", afxdp.Config{}, total, func(uint64) int { return 60 }},
		{"all sizes", afxdp.Config{}, 30_000, func(i uint64) int { return sizeOf(i, mtu+14) }},
		{"scant", scant, 30_000, func(i uint64) int { return sizeOf(i, 1000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := netns.XDPPair(t, pair.Config{MTU: mtu})
			sa, sb := steer(t, p, pair.A, false), steer(t, p, pair.B, false)
			us, them := &end{q: openIn(t, p, pair.A, c.conf)}, openForeign(t, p, pair.B)
			sa.to(t, 0, us.q.FD())
			sb.to(t, 0, them.x.FD())
			for us.sent < c.total || them.sent < c.total {
				_, err := receive(us.q, us.got.see)
				rig.Must(t, err)
				rig.Must(t, them.receive())
				if us.sent < c.total {
					n, err := transmit(us.q, us.sent, 64, c.size)
					rig.Must(t, err)
					us.sent += uint64(n)
				}
				if them.sent < c.total {
					them.transmit(64, c.size)
				}
			}
			rig.Eventually(t, "they have transmitted all", func() bool {
				them.transmit(0, c.size) // one call sends 32 frames
				_, err := receive(us.q, us.got.see)
				rig.Must(t, err)
				return them.x.NumTransmitted() == 0
			})
			settle(t, us)
			rig.Must(t, them.receive())
			compare(t, us, them)
		})
	}
}

// compare checks that the counters explain every lost frame, and that few are lost: in
// a lock-step loop, no queue stays full.
func compare(t *testing.T, us *end, them *foreign) {
	t.Helper()
	s, err := us.q.Stats()
	rig.Must(t, err)
	f, err := them.x.Stats()
	rig.Must(t, err)
	our := them.sent - uint64(us.got.count)
	their := us.sent - uint64(them.got.count)
	theirDrops := s.Lost + f.KernelStats.Rx_dropped + f.KernelStats.Rx_ring_full + f.KernelStats.Rx_fill_ring_empty_descs
	// The other implementation does not count the frames that its driver drops (EBUSY).
	if their > theirDrops || our > them.sent/100 || their > us.sent/100 {
		t.Errorf("we miss %d of %d, they %d of %d with %d dropped: %+v", our, them.sent, their, us.sent, theirDrops, s)
	}
	if s.RxBad+s.Misused+s.Kernel.TxInvalid+s.Kernel.RxInvalid+f.KernelStats.Rx_invalid_descs != 0 {
		t.Errorf("invalid descriptors: %+v, %+v", s, f.KernelStats)
	}
	t.Logf("we sent %d, they saw %d; they sent %d, we saw %d", us.sent, them.got.count, them.sent, us.got.count)
}
