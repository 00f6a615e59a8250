package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
)

// peerSends makes the peer send to this side through the peer's interface of that name.
func (r *rig) peerSends(by string) {
	r.Helper()
	r.ip(theirs, "route", "replace", r.addr(ours, false)+"/32", "dev", by, "src", r.addr(theirs, false))
}

// openBoth offloads both local interfaces as one adapter.
func (r *rig) openBoth() (other *nic.NIC) {
	r.Helper()
	r.in(ours, func() error {
		all, err := nic.OpenAll(nic.Config{Link: r.pair.Ends[ours].Name, RxFrames: 512}, nic.Config{Link: "q0", RxFrames: 512})
		if err != nil {
			return err
		}
		r.nic, other = all[0], all[1]
		return nil
	})
	r.Cleanup(func() { r.Check(other.Close()) })
	return other
}

// countersOf returns the sum of the counters of an interface's engines.
func (r *rig) countersOf(n *nic.NIC) (sum engine.Counters) {
	r.Helper()
	for q := range n.Engines() {
		g, err := n.Look(context.Background(), q, nil, nil)
		r.Must(err)
		sum.Add(&g.Counters)
	}
	return sum
}

// stayOn loads the pinned program on a local interface, as the instance of that name.
func (r *rig) stayOn(link, instance string) {
	r.Helper()
	r.stayWith(loader.Options{Link: link}, instance)
}

// stayWith does the same as stayOn with other options.
func (r *rig) stayWith(o loader.Options, instance string) {
	r.Helper()
	dir := filepath.Join(loader.Root, instance)
	o.Pin = dir
	r.in(ours, func() error {
		s, err := loader.Load(o)
		if err != nil {
			return err
		}
		return s.Close()
	})
	r.Cleanup(func() {
		_, err := loader.Unload(loader.UnloadOptions{Instance: o.Pin})
		if !errors.Is(err, loader.ErrNotPinned) { // two interfaces of one instance
			r.Check(err)
		}
	})
}

// TestPeerSendsByAnotherCable checks that packets reach the connection if the peer sends them through another cable.
// None is lost: not when the peer changes to that cable, not afterwards, and not when it changes back. The frames of
// the other interface return to it: it receives many times as many packets as it has frames. The result is the same
// with pinned and private programs, and with one or two instances.
func TestPeerSendsByAnotherCable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		instances []string
	}{
		{"private", nil},
		{"of one instance", []string{"cables", "cables"}},
		{"of two instances", []string{"cables", "cables2"}},
	} {
		t.Run(c.name, func(t *testing.T) { peerSendsByAnotherCable(t, c.instances) })
	}
}

func peerSendsByAnotherCable(t *testing.T, instances []string) {
	r := newStage(t, setup{})
	r.secondCable()
	for side, end := range []string{"q0", "q1"} {
		r.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
	}
	for i, name := range instances {
		r.stayOn([]string{r.pair.Ends[ours].Name, "q0"}[i], name)
	}
	other := r.openBoth()
	const volume = 96 << 20
	x := r.unfinished(volume)
	x.reach(1 << 20)
	r.peerSends("q1")
	x.reach(40 << 20)
	r.peerSends(r.pair.Ends[theirs].Name)
	x.reach(60 << 20)
	r.peerSends("q1")
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
	r.flowsGoWithTheirInterface(other, instances)
}

// flowsGoWithTheirInterface closes the other interface while a connection is open that both programs know. It checks
// that the interface keeps nothing of the connection.
func (r *rig) flowsGoWithTheirInterface(other *nic.NIC, instances []string) {
	r.Helper()
	x := r.unfinished(8 << 20)
	r.Must(other.Close())
	r.peerSends(r.pair.Ends[theirs].Name)
	x.finish()
	r.Must(r.nic.Close())
	for _, name := range instances {
		i, err := loader.ReadInstance(filepath.Join(loader.Root, name))
		r.Must(errors.Join(err, i.Err))
		for _, p := range i.Ports {
			if r.Check(p.Err); len(p.Flows) != 0 {
				r.Errorf("%s has %d flows when all is closed", p.Dir, len(p.Flows))
			}
		}
	}
}

// TestFlowsOfAnAdapterHaveOneNumber checks that flows of two interfaces have different numbers, and that both programs
// know each flow until it ends.
func TestFlowsOfAnAdapterHaveOneNumber(t *testing.T) {
	r := newStage(t, setup{})
	r.secondCable()
	for side, end := range []string{"q0", "q1"} {
		r.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
	}
	other := r.openBoth()
	if !r.nic.Steering().SharesFlows(other.Steering()) {
		t.Error("the two interfaces do not share flows")
	}
	seen := map[engine.FlowID]bool{}
	for range 5 {
		x := r.unfinished(1 << 17)
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
