package afxdp_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

const (
	benchBatch = 64
	benchLen   = 60
)

// BenchmarkTx takes, sends and flushes a batch of small frames. The far end drops the
// frames in XDP. Most of the time is the kernel's transmission, which is the same for
// both implementations.
func BenchmarkTx(b *testing.B) {
	b.Run("stag", func(b *testing.B) {
		p := netns.XDPPair(b, pair.Config{})
		drop(b, p, pair.B)
		q := openUnchecked(b, p, pair.A)
		var lent [benchBatch]port.Frame
		perFrame(b, func() int {
			n := q.Take(lent[:])
			for i := range lent[:n] {
				lent[i].Len = benchLen
				q.Bytes(lent[i])[0] = 2
			}
			n = q.Send(lent[:n])
			q.Free(lent[:n])
			rig.Must(b, q.Flush())
			return n
		})
	})
	b.Run("asavie", func(b *testing.B) {
		p := netns.XDPPair(b, pair.Config{})
		drop(b, p, pair.B)
		x := openForeign(b, p, pair.A).x
		perFrame(b, func() int {
			if done := x.NumCompleted(); done > 0 {
				x.Complete(done)
			}
			descs := x.GetDescs(min(benchBatch, x.NumFreeTxSlots()))
			for i := range descs {
				descs[i].Len = benchLen
				x.GetFrame(descs[i])[0] = 2
			}
			n := x.Transmit(descs)
			x.Transmit(nil) // one call sends 32 frames
			return n
		})
	})
}

// BenchmarkRx takes, reads and recycles a batch of arrived frames. The arrival of the
// frames is not timed.
func BenchmarkRx(b *testing.B) {
	b.Run("stag", func(b *testing.B) {
		p := netns.XDPPair(b, pair.Config{})
		s := steer(b, p, pair.B, true)
		src, q := openUnchecked(b, p, pair.A), openUnchecked(b, p, pair.B)
		s.to(b, 0, q.FD())
		q.Receive(nil)
		var got [benchBatch]port.Frame
		sum := byte(0)
		perArrival(b, src, func() int {
			n := q.Receive(got[:])
			for _, f := range got[:n] {
				sum += q.Bytes(f)[0]
			}
			q.Recycle(got[:n])
			return n
		})
	})
	b.Run("asavie", func(b *testing.B) {
		p := netns.XDPPair(b, pair.Config{})
		s := steer(b, p, pair.B, true)
		src, x := openUnchecked(b, p, pair.A), openForeign(b, p, pair.B).x
		s.to(b, 0, x.FD())
		x.Fill(x.GetDescs(256))
		sum := byte(0)
		perArrival(b, src, func() int {
			descs := x.Receive(x.NumReceived())
			for _, d := range descs {
				sum += x.GetFrame(d)[0]
			}
			return x.Fill(descs)
		})
	})
}

// perFrame reports the time per frame of f, which returns the number of frames that it
// moved.
func perFrame(b *testing.B, f func() int) {
	frames := 0
	b.ReportAllocs()
	for b.Loop() {
		frames += f()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
}

// perArrival sends a batch from src without timing, and then times f.
func perArrival(b *testing.B, src *afxdp.Queue, f func() int) {
	frames, number := 0, uint64(0)
	var spent time.Duration
	for b.Loop() {
		n, err := transmit(src, number, benchBatch, func(uint64) int { return benchLen })
		rig.Must(b, err)
		number += uint64(n)
		begin := time.Now()
		frames += f()
		spent += time.Since(begin)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(frames), "ns/frame")
}

func openUnchecked(b *testing.B, p *pair.Pair, side pair.Side) (q *afxdp.Queue) {
	b.Helper()
	// The pools and rings have the sizes of openForeign, because the size of the
	// working set matters most.
	c := afxdp.Config{RxFrames: 256, TxFrames: 256, RxRing: 256, TxRing: 256, FillRing: 256, CompRing: 256}
	c.IfName = p.Ends[side].Name
	_, r := newRegion(b, c)
	rig.Must(b, p.Do(side, func() (err error) {
		q, err = afxdp.Open(c, r)
		return err
	}))
	b.Cleanup(func() { rig.Must(b, q.Close()) })
	return q
}

// drop attaches a program that drops all packets.
func drop(b *testing.B, p *pair.Pair, side pair.Side) {
	b.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.LoadImm(asm.R0, 1, asm.DWord), asm.Return()}, // XDP_DROP
	})
	rig.Must(b, err)
	b.Cleanup(func() { prog.Close() })
	rig.Must(b, p.Do(side, func() error {
		l, err := link.AttachXDP(link.XDPOptions{
			Program: prog, Interface: p.Ends[side].Index, Flags: link.XDPDriverMode,
		})
		if err == nil {
			b.Cleanup(func() { l.Close() })
		}
		return err
	}))
}
