package e2e

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
)

// secondCable lays another veth pair between the two sides, without addresses, and
// returns the names of its ends.
func (r *rig) secondCable() (names [2]string) {
	r.Helper()
	for side := range names {
		name := r.pair.Ends[side].Name
		names[side] = name[:len(name)-2] + "x2"
	}
	var far *os.File
	r.in(theirs, func() (err error) {
		far, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer far.Close()
	r.in(ours, func() error {
		veth := netlink.NewVeth(netlink.NewLinkAttrs())
		veth.Name, veth.PeerName, veth.PeerNamespace = names[0], names[1], netlink.NsFd(far.Fd())
		return netlink.LinkAdd(veth)
	})
	for side, name := range names {
		r.in(pair.Side(side), func() error {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
	for side, name := range names {
		r.Eventually(name+" has its carrier", func() (up bool) {
			r.in(pair.Side(side), func() error {
				l, err := netlink.LinkByName(name)
				up = err == nil && l.Attrs().OperState == netlink.OperUp
				return err
			})
			return up
		})
	}
	return names
}

// sendBy makes the peer send what is for us through its interface of that name, to the
// other end of that cable.
func (r *rig) sendBy(peers, other string) {
	r.Helper()
	var mac net.HardwareAddr
	r.in(ours, func() error {
		ifc, err := net.InterfaceByName(other)
		if err == nil {
			mac = ifc.HardwareAddr
		}
		return err
	})
	to := r.pair.Ends[ours].V4.Addr()
	r.in(theirs, func() error {
		l, err := netlink.LinkByName(peers)
		if err != nil {
			return err
		}
		host := &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: to.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}); err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: host, Scope: netlink.SCOPE_LINK})
	})
}

// openBoth makes both of our interfaces ours, as one adapter.
func (r *rig) openBoth(second string) (other *nic.NIC) {
	r.Helper()
	r.in(ours, func() error {
		all, err := nic.OpenAll(nic.Config{Link: r.pair.Ends[ours].Name, RxFrames: 512}, nic.Config{Link: second, RxFrames: 512})
		if err != nil {
			return err
		}
		r.nic, other = all[0], all[1]
		return nil
	})
	r.Cleanup(func() { r.Check(other.Close()) })
	return other
}

// counters are what the engines of an interface have counted.
func (r *rig) countersOf(n *nic.NIC) (sum engine.Counters) {
	r.Helper()
	for q := range n.Engines() {
		g, err := n.Look(context.Background(), q, nil, nil)
		r.Must(err)
		sum.Add(&g.Counters)
	}
	return sum
}

// TestPeerSendsByAnotherCable: what the peer sends by another cable than ours goes by
// reaches the connection, and nothing of it is lost: not when it changes to that
// cable, not afterwards, and not when it changes back. The frames of the other
// interface come home: it receives many times as many as it has.
func TestPeerSendsByAnotherCable(t *testing.T) {
	r := newStage(t, setup{pair: pair.Config{Queues: 2}})
	second := r.secondCable()
	other := r.openBoth(second[ours])
	x := r.transfer(96 << 20)
	x.reach(1 << 20)
	r.sendBy(second[theirs], second[ours])
	x.reach(40 << 20)
	r.sendBy(r.pair.Ends[theirs].Name, r.pair.Ends[ours].Name)
	x.reach(60 << 20)
	r.sendBy(second[theirs], second[ours])
	x.finish()
	there, here := r.countersOf(other), r.countersOf(r.nic)
	if there.RxPackets < 5000 || there.PassedOut < 5000 || here.PassedIn < 5000 {
		t.Errorf("the other interface received %d packets and passed on %d, ours was passed %d: want thousands", there.RxPackets, there.PassedOut, here.PassedIn)
	}
	for _, c := range []engine.Counters{there, here} {
		c.Drops(func(layer, reason string, n uint64) {
			if n != 0 && layer == "engine" {
				t.Errorf("%d packets dropped: %s", n, reason)
			}
		})
	}
	if n := r.nic.Counters().Strays + other.Counters().Strays; n != 0 {
		t.Errorf("%d segments reached the kernel", n)
	}
	r.transfer(1 << 20).finish()
}

// TestFlowsOfAnAdapterHaveOneNumber: flows of one interface and of another have
// different numbers, and each is known to both programs, until it ends.
func TestFlowsOfAnAdapterHaveOneNumber(t *testing.T) {
	r := newStage(t, setup{})
	second := r.secondCable()
	other := r.openBoth(second[ours])
	if !r.nic.Steering().SharesFlows(other.Steering()) {
		t.Error("the two interfaces do not share flows")
	}
	seen := map[engine.FlowID]bool{}
	for range 5 {
		x := r.transfer(1 << 16)
		if seen[x.flow.ID()] {
			t.Errorf("two flows are number %#x", uint32(x.flow.ID()))
		}
		seen[x.flow.ID()] = true
		if _, err := other.Steering().Lookup(x.flow.Key()); err != nil {
			t.Error(err)
		}
		defer x.finish()
	}
}
