package nic_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

const (
	firePeers  = 1000
	fireFrames = 2048 // in each of the queue's pools
	fireVolume = 1 << 20
)

// deaf is an application that does not read.
type deaf struct{ *octets.Transfer }

func (deaf) Receive(clock.Instant, stream.Stream) {}

// fire is an interface whose peers are the kernel's TCP at the other end.
type fire struct {
	*testing.T
	ctx    context.Context
	p      *pair.Pair
	card   *nic.NIC
	listen net.Listener
}

func newFire(t *testing.T) *fire {
	t.Helper()
	return newFireIn(t, pair.Config{}, nic.Config{RxFrames: fireFrames, TxFrames: fireFrames})
}

// newFireIn is newFire with another cable and another configuration of the interface.
func newFireIn(t *testing.T, cable pair.Config, c nic.Config) *fire {
	t.Helper()
	f := &fire{T: t, ctx: rig.Context(t), p: netns.XDPPair(t, cable)}
	c.Link = f.p.Ends[pair.A].Name
	netns.In(t, f.p, pair.A, func() (err error) {
		f.card, err = nic.Open(c)
		return err
	})
	t.Cleanup(func() { f.card.Close() })
	netns.In(t, f.p, pair.B, func() (err error) {
		f.listen, err = (&net.ListenConfig{}).Listen(f.ctx, "tcp4", f.p.Ends[pair.B].V4.Addr().String()+":0")
		return err
	})
	t.Cleanup(func() { f.listen.Close() })
	return f
}

// connect makes n connections to kernel peers and takes the local ends over.
func (f *fire) connect(n int, ulp func() stream.ULP) (peers []net.Conn, flows []*nic.Flow) {
	f.Helper()
	var ours []*net.TCPConn
	err := f.p.Do(pair.A, func() error {
		var d net.Dialer
		d.SetMultipathTCP(false)
		for range n {
			c, err := d.DialContext(f.ctx, "tcp4", f.listen.Addr().String())
			if err != nil {
				return err
			}
			ours = append(ours, c.(*net.TCPConn))
			peer, err := f.listen.Accept()
			if err != nil {
				return err
			}
			f.Cleanup(func() { peer.Close() })
			peers = append(peers, peer)
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	flows = make([]*nic.Flow, n)
	taken := make(chan error, n)
	for i, c := range ours {
		go func() {
			var err error
			flows[i], err = f.card.Take(f.ctx, c, ulp(), nic.DefaultOptions)
			taken <- err
		}()
	}
	var errs []error
	for range n {
		errs = append(errs, <-taken)
	}
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
	return peers, flows
}

// useful checks that a flow beside the others echoes what a peer sends.
func (f *fire) useful() {
	f.Helper()
	peers, flows := f.connect(1, func() stream.ULP { return octets.NewEcho() })
	done := make(chan error, 1)
	go func() { done <- exchange(peers[0].(*net.TCPConn), fireVolume) }()
	select {
	case err := <-done:
		if err != nil {
			f.Fatalf("the flow beside them: %v", err)
		}
	case <-f.ctx.Done():
		f.Fatal("the flow beside them does not get through")
	}
	if err := flows[0].Close(f.ctx); err != nil {
		f.Errorf("the flow beside them ended with %v", err)
	}
}

// settle waits until the engine has had no new segment for a while, or until a limit,
// and returns the last Glance.
func (f *fire) settle() (g nic.Glance) {
	f.Helper()
	var before uint64
	for range 20 {
		var err error
		if g, err = f.card.Look(f.ctx, 0, nil, nil); err != nil {
			f.Fatal(err)
		}
		if g.Counters.RxPackets == before {
			break
		}
		before = g.Counters.RxPackets
		time.Sleep(250 * time.Millisecond)
	}
	return g
}

// frames returns how many receive frames the flows hold.
func (f *fire) frames(flows []*nic.Flow) (all, most int) {
	f.Helper()
	for _, flow := range flows {
		i, err := flow.Info(f.ctx)
		if err != nil {
			f.Fatalf("flow %v: %v", flow.Key(), err)
		}
		n := i.RcvFrames + i.ReorderFrames
		all, most = all+n, max(most, n)
	}
	return all, most
}

// A thousand kernel peers send as much as they can to applications that do not read.
func TestThousandNeverRead(t *testing.T) {
	f := newFire(t)
	peers, flows := f.connect(firePeers, func() stream.ULP {
		return deaf{octets.NewTransfer(octets.Plan{Hold: true})}
	})
	for _, p := range peers {
		go p.Write(make([]byte, fireVolume)) // ends when the peer is closed
	}
	g := f.settle()
	all, most := f.frames(flows)
	t.Logf("%d flows hold %d of %d receive frames, one at most %d; %d segments have come", len(flows), all, fireFrames, most, g.Counters.RxPackets)
	if all == 0 || all > fireFrames*7/8 {
		t.Errorf("%d of %d receive frames are held", all, fireFrames)
	}
	f.useful()
}

// A thousand kernel peers whose applications do not read are sent more than their
// windows take.
func TestThousandDoNotRead(t *testing.T) {
	f := newFire(t)
	f.connect(firePeers, func() stream.ULP {
		return octets.NewTransfer(octets.Plan{Send: 64 << 20, Seed: 1, Hold: true})
	})
	g := f.settle()
	t.Logf("%d segments were sent, %d times a frame was missing", g.Counters.TxPackets, g.Counters.NoTxFrame)
	f.useful()
}
