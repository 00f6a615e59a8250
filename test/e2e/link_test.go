package e2e

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/netns"
)

// running is a transfer in both directions between an engine and a plain peer.
type running struct {
	*rig
	volume uint64
	peer   *talk
	ulp    *octets.Transfer
	flow   *nic.Flow
	last   chan struct{} // the peer sends its last octets when last is closed; nil: it sends them at once
}

// transfer starts a transfer with the local end taken over.
func (r *rig) transfer(volume uint64) running {
	r.Helper()
	our, peer := r.connect(way{})
	return r.transferOn(our, peer, volume)
}

// unfinished starts a transfer whose peer does not send its last octets before finish. The connection therefore lives
// until then, however fast the rest is.
func (r *rig) unfinished(volume uint64) running {
	r.Helper()
	our, peer := r.connect(way{})
	last := make(chan struct{})
	t := r.transferBy(our, &talk{conn: peer, send: volume, pace: func(pos uint64) {
		if pos >= volume-1<<16 {
			<-last
		}
	}})
	t.last = last
	return t
}

// peerReaches waits until that many octets have arrived at the peer. The other direction may be a gigabyte behind,
// because the two share one core.
func (t running) peerReaches(n uint64) {
	t.Helper()
	t.Eventually("octets arrive at the peer", func() bool { return t.peer.received.Load() > n })
}

// reach waits until that many octets have arrived at both ends.
func (t running) reach(n uint64) {
	t.Helper()
	t.Eventually("octets arrive", func() bool {
		select {
		case <-t.ulp.Done():
			t.Fatalf("the transfer has ended: %v", t.ulp.Err())
		default:
		}
		return t.ulp.Received() >= n && t.peer.received.Load() >= n
	})
}

// movesTo waits until the connection is at an interface. A connection that has ended moves
// no more, so that the wait ends at once. Start the transfer with unfinished: a fast transfer
// ends before the interface is gone or the route has changed.
func (t running) movesTo(to *nic.NIC) {
	t.Helper()
	t.Eventually("the connection is at the other interface", func() bool {
		ended := false
		select {
		case <-t.flow.Done():
			ended = true
		default:
		}
		at := t.flow.NIC() // read after Done: the connection may move and then end
		if ended && at != to {
			t.Fatalf("the connection has ended at %s: %v; we have received %d octets, and the peer %d of %d",
				at.Link().Name, t.flow.Err(), t.ulp.Received(), t.peer.received.Load(), t.volume)
		}
		return at == to
	})
}

// finish checks that every octet has arrived, and nothing else.
func (t running) finish() {
	t.Helper()
	if t.last != nil {
		close(t.last)
	}
	t.Wait(t.ulp.Done(), "the transfer")
	t.Must(t.ulp.Err())
	t.Must(<-t.peer.wrote)
	t.Must(<-t.peer.read)
	if n := t.peer.received.Load(); n != t.volume {
		t.Fatalf("the peer got %d octets of %d", n, t.volume)
	}
}

// TestLinkDownAndUp checks that a transfer survives a link that goes down and up three times. Afterwards the flow still
// follows its neighbour.
func TestLinkDownAndUp(t *testing.T) {
	for _, side := range []pair.Side{ours, theirs} {
		t.Run(map[pair.Side]string{ours: "ours", theirs: "the peer's"}[side], func(t *testing.T) {
			r := newRig(t, setup{})
			x := r.unfinished(64 << 20)
			for i := range uint64(3) {
				x.reach((i + 1) << 20)
				r.Must(r.setLink(side, false))
				time.Sleep(50 * time.Millisecond)
				r.Must(r.setLink(side, true))
			}
			x.reach(4 << 20)
			r.isKept()
			r.moveMAC(theirs, true)
			x.finish()
		})
	}
}

// deleteCable deletes a side's end of the cable. The other end is removed with it. Unlike ip,
// deleteCable starts no process, which would take long enough for a transfer to end before.
func (r *rig) deleteCable(side pair.Side) {
	r.Helper()
	r.in(side, func() error {
		l, err := netlink.LinkByName(r.pair.Ends[side].Name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

// moveMAC gives a side another MAC address. If announce is true, the side announces the address by gratuitous ARP.
func (r *rig) moveMAC(side pair.Side, announce bool) {
	r.Helper()
	r.in(side, func() error {
		l, err := netlink.LinkByName(r.pair.Ends[side].Name)
		if err != nil {
			return err
		}
		value := map[bool]string{false: "0", true: "1"}[announce]
		mac := append(net.HardwareAddr(nil), l.Attrs().HardwareAddr...)
		mac[5]++
		return errors.Join(netns.Sysctl("ipv4/conf/"+l.Attrs().Name+"/arp_notify", value), netlink.LinkSetHardwareAddr(l, mac))
	})
}

// TestNeighbourMoves checks that a transfer follows its next hop to another MAC address, in whatever way the kernel
// learns the address.
func TestNeighbourMoves(t *testing.T) {
	for _, way := range []struct {
		name string
		move func(*rig)
	}{
		{"announced", func(r *rig) { r.moveMAC(theirs, true) }},
		{"forgotten", func(r *rig) { r.moveMAC(theirs, false); r.forgetNeighbours() }},
		{"unannounced", func(r *rig) { r.hurryNeighbours(); r.moveMAC(theirs, false) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			r := newRig(t, setup{})
			x := r.unfinished(32 << 20)
			for i := range uint64(2) {
				x.reach((i + 1) << 20)
				way.move(r)
				r.isKept()
			}
			x.finish()
		})
	}
}

// forgetNeighbours deletes the local side's neighbour entries.
func (r *rig) forgetNeighbours() {
	r.Helper()
	r.in(ours, func() error {
		all, err := netlink.NeighList(r.pair.Ends[ours].Index, netlink.FAMILY_V4)
		for _, n := range all {
			err = errors.Join(err, netlink.NeighDel(&n))
		}
		return err
	})
}

// isKept waits until the local side's kernel refreshes the peer's neighbour entry by itself.
func (r *rig) isKept() {
	r.Helper()
	r.Eventually("the kernel keeps the neighbour fresh", func() (kept bool) {
		r.in(ours, func() error {
			all, err := netlink.NeighList(r.pair.Ends[ours].Index, netlink.FAMILY_V4)
			for _, n := range all {
				kept = kept || n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 && n.HardwareAddr != nil
			}
			return err
		})
		return kept
	})
}

// hurryNeighbours makes the local side's kernel detect a silent neighbour sooner.
func (r *rig) hurryNeighbours() {
	r.Helper()
	dir := "ipv4/neigh/" + r.pair.Ends[ours].Name + "/"
	for name, value := range map[string]string{
		"base_reachable_time_ms": "200", "delay_first_probe_time": "0", "retrans_time_ms": "50",
		"interval_probe_time_ms": "200", "locktime": "0",
	} {
		r.in(ours, func() error { return netns.Sysctl(dir+name, value) })
	}
}

// TestInterfaceRemovedInTransfer removes the interface. Every flow ends, even during calls to it, and everything can be
// closed.
func TestInterfaceRemovedInTransfer(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{Queues: 2}})
	var all []running
	for range 4 {
		all = append(all, r.transfer(1<<40))
	}
	for _, x := range all {
		x.reach(1 << 20)
	}
	closing := make(chan error, len(all))
	for _, x := range all {
		go func() { closing <- x.flow.Close(r.Ctx()) }()
	}
	r.deleteCable(theirs)
	for _, x := range all {
		r.Wait(x.flow.Done(), "the end of the flow")
		for _, err := range []error{x.flow.Err(), x.ulp.Err(), <-closing} {
			if !errors.Is(err, stream.ErrPort) {
				t.Errorf("the connection ended with %v", err)
			}
		}
		if x.flow.Final().OctetsIn == 0 {
			t.Error("what the connection had counted is lost")
		}
	}
	r.Eventually("no flow is left", func() bool { return len(r.nic.Flows()) == 0 })
	x := all[0].flow
	if err := x.Abort(r.Ctx()); err != nil {
		t.Errorf("Abort afterwards: %v", err)
	}
	if err := x.Close(r.Ctx()); !errors.Is(err, stream.ErrPort) {
		t.Errorf("Close afterwards: %v", err)
	}
	r.Must(r.nic.Close())
}
