package iscsi_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestCaptureOfTakeOver: captures at both ends say of the first packet of a session that it is one of iSCSI, also while
// the connection is being taken over.
func TestCaptureOfTakeOver(t *testing.T) {
	r, p := rig.On(t), netns.XDPPair(t, pair.Config{})
	var adapters [2]*rdma.Adapter
	var s *iscsi.Server
	b := ram(t, 1<<20)
	for _, side := range []pair.Side{pair.A, pair.B} {
		netns.In(t, p, side, func() (err error) {
			adapters[side], err = rdma.Open(rdma.Config{Ports: []string{p.Ends[side].Name}, NoControl: true})
			return err
		})
		t.Cleanup(func() { r.Must(adapters[side].Close()) })
	}
	netns.In(t, p, pair.B, func() error {
		s = serveOn(t, b, func(c *iscsi.ServerConfig) {
			c.Adapter, c.Address = adapters[pair.B], p.Ends[pair.B].V4.Addr().String()+":3260"
		})
		return nil
	})
	ctx, stop := context.WithCancel(r.Ctx())
	var captures sync.WaitGroup
	var mu sync.Mutex
	flows := map[[2]uint32]bool{} // by side
	for side, a := range adapters {
		begun := make(chan struct{})
		captures.Go(func() {
			kinds := map[uint32]string{}
			r.Check(a.Capture(ctx, report.Filter{SnapLen: 128}, func(b report.Batch) error {
				mu.Lock()
				defer mu.Unlock()
				select {
				case <-begun:
				default:
					close(begun)
				}
				for _, st := range b.Streams {
					kinds[st.Flow] = st.Kind
				}
				for _, q := range b.Packets {
					if q.Flow != 0 && kinds[q.Flow] != report.ISCSI {
						t.Errorf("side %d: a packet of flow %#x, out %v, of %d octets, is of kind %q", side, q.Flow, q.Out, q.Length, kinds[q.Flow])
					}
					flows[[2]uint32{uint32(side), q.Flow}] = true
				}
				return nil
			}))
		})
		r.Wait(begun, "the beginning of a capture")
	}
	for range 10 {
		d, err := iscsi.Dial(r.Ctx(), url(s, "", ""), iscsi.Config{Adapter: adapters[pair.A]})
		r.Must(err)
		r.Must(d.Close())
	}
	r.Eventually("all flows are captured", func() bool { mu.Lock(); defer mu.Unlock(); return len(flows) >= 20 })
	stop()
	captures.Wait()
}
