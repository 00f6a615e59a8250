package afxdp_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// BenchmarkLevel sends full frames, receives them and copies their octets out, with several
// numbers of chunks in the fill ring. NAPI runs inline, so the thread's processor time has
// all of it: sender, kernel and receiver.
func BenchmarkLevel(b *testing.B) {
	for _, level := range []int{256, 512, 1024, 2048, 4096} {
		b.Run(fmt.Sprint(level), func(b *testing.B) {
			p := netns.XDPPair(b, pair.Config{})
			s := steer(b, p, pair.B, true)
			open := func(side pair.Side) (q *afxdp.Queue) {
				c := afxdp.Config{IfName: p.Ends[side].Name}
				_, r := newRegion(b, c)
				rig.Must(b, p.Do(side, func() (err error) {
					q, err = afxdp.Open(c, r)
					return err
				}))
				b.Cleanup(func() { rig.Must(b, q.Close()) })
				return q
			}
			src, dst := open(pair.A), open(pair.B)
			dst.SetLevel(level)
			s.to(b, 0, dst.FD())
			memory := make([]byte, 1<<20)
			var got [64]port.Frame
			var took []int64
			frames := 0
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			dst.Receive(nil)
			for n := 0; b.Loop(); {
				begin := threadTime(b)
				sent, err := transmit(src, 0, 32, func(uint64) int { return 1500 })
				rig.Must(b, err)
				n = dst.Receive(got[:])
				for i, f := range got[:n] {
					copy(memory[(frames+i)*2048&(len(memory)-1):], dst.Bytes(f))
				}
				dst.Recycle(got[:n])
				frames += n
				if sent == 32 && n == 32 {
					took = append(took, threadTime(b)-begin)
				}
			}
			if len(took) == 0 {
				b.Fatal("no batch arrived whole")
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/32, "cpu-ns/packet")
			b.ReportMetric(float64(took[len(took)/10])/32, "cpu-ns/packet-p10")
		})
	}
}
