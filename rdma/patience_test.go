package rdma

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/stream"
)

// TestPeerTimeout: a connection to a peer that vanishes ends after PeerTimeout, whether
// data is in flight or not. Without PeerTimeout that takes minutes, which is more than the
// test waits.
func TestPeerTimeout(t *testing.T) {
	for _, c := range []struct {
		name           string
		kernel, accept bool
		busy           bool
	}{
		{name: "offloaded, sending", busy: true},
		{name: "offloaded, accepted, silent", accept: true},
		{name: "kernel port, accepted, silent", kernel: true, accept: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newStage(t, pairConfig)
			r.openHosts(func(side pair.Side) Config {
				if side == pair.B || c.kernel {
					return Config{KernelPort: true}
				}
				return Config{Ports: []string{r.pair.Ends[side].Name}}
			})
			ours, theirs := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
			w := wants{dial: ConnParams{PeerTimeout: adapter.LeastPatience}}
			if c.accept {
				w = wants{accept: w.dial}
				r.host = r.pair.Ends[pair.A].V4.Addr().String()
				r.Must(r.join(theirs, ours, w))
			} else {
				r.Must(r.join(ours, theirs, w))
			}
			r.vanish(pair.B)
			if c.busy {
				ours.post(SendWR{Op: WRWrite, SGL: []SGE{ours.mr.SGE(0, 64)}, RKey: theirs.mr.RKey(), RemoteAddr: theirs.mr.Addr()})
			}
			ours.done()
			r.Says(ours.qp.Err(), stream.ErrTimeout)
		})
	}
}

// vanish removes a side's address: no host answers at it any more.
func (r *rig) vanish(side pair.Side) {
	r.Helper()
	end := r.pair.Ends[side]
	r.Must(r.pair.Do(side, func() error {
		l, err := netlink.LinkByName(end.Name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(end.V4.String())
		if err != nil {
			return err
		}
		return netlink.AddrDel(l, a)
	}))
}

func TestPeerTimeoutTooShort(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, time.Millisecond, adapter.LeastPatience - 1} {
		if _, err := (ConnParams{PeerTimeout: d}).fill(); err == nil {
			t.Errorf("a PeerTimeout of %v is taken", d)
		}
	}
	for _, d := range []time.Duration{0, adapter.LeastPatience, time.Hour} {
		if _, err := (ConnParams{PeerTimeout: d}).fill(); err != nil {
			t.Error(err)
		}
	}
}
