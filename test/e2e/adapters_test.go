package e2e

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// bothCables is the name of the instance of both local interfaces. secondCable is the name of the second interface.
const (
	bothCables  = "adapters"
	secondCable = "q0"
)

// loadBoth loads the program for both local interfaces as one pinned instance. The
// programs delete the flows of ended engines at once.
func (r *rig) loadBoth() {
	r.Helper()
	r.secondCable()
	for side, end := range []string{secondCable, "q1"} {
		r.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
	}
	for _, link := range []string{r.pair.Ends[ours].Name, secondCable} {
		r.stayWith(loader.Options{Link: link, OrphanWait: loader.NoOrphanWait}, bothCables)
	}
	r.Cleanup(func() { // runs before the program is unloaded
		if r.nic != nil {
			r.Check(r.nic.Close())
		}
	})
}

// openSecond offloads the second interface as an adapter of its own.
func (r *rig) openSecond() (n *nic.NIC) {
	r.Helper()
	r.in(ours, func() (err error) {
		n, err = nic.Open(nic.Config{Link: secondCable, RxFrames: 512})
		return err
	})
	r.Cleanup(func() { r.Check(n.Close()) })
	return n
}

// runOn starts a connection over the second cable and lets n take it over. The connection runs until it is reset.
func (r *rig) runOn(n *nic.NIC) (*talk, *nic.Flow) {
	r.Helper()
	var l net.Listener
	r.in(theirs, func() (err error) {
		l, err = net.Listen("tcp4", "198.18.0.2:0")
		return err
	})
	r.Cleanup(func() { l.Close() })
	var our net.Conn
	r.in(ours, func() (err error) {
		our, err = net.Dial("tcp4", l.Addr().String())
		return err
	})
	k := (&talk{conn: r.accept(l.(*net.TCPListener)), out: seedTheirs, in: seedOurs, send: 1 << 40}).start()
	ulp := octets.NewTransfer(octets.Plan{Send: 1 << 40, Seed: seedOurs, Expect: 1 << 40, PeerSeed: seedTheirs, Hold: true})
	f, err := n.Take(r.Ctx(), our.(*net.TCPConn), ulp, nic.DefaultOptions)
	r.Must(err)
	r.Eventually("octets flow over the second cable", func() bool { return k.received.Load() > 1<<20 && k.sent.Load() > 1<<20 })
	return k, f
}

// TestClosingOneAdapterLeavesTheOthersConnections runs two adapters of one process on the two interfaces of an
// instance. The interfaces share a flow map. When one adapter closes, its connections end, and those of the other
// adapter continue.
func TestClosingOneAdapterLeavesTheOthersConnections(t *testing.T) {
	r := newStage(t, setup{})
	r.loadBoth()
	r.open(nic.Config{RxFrames: 512})
	second := r.openSecond()
	x := r.unfinished(32 << 20)
	k, gone := r.runOn(second)
	x.reach(1 << 20)

	r.Must(second.Close())
	r.isReset(<-k.wrote)
	<-k.read
	if _, err := r.nic.Steering().Lookup(x.flow.Key()); err != nil {
		t.Errorf("the entry of the other adapter's flow: %v", err)
	}
	if _, err := r.nic.Steering().Lookup(gone.Key()); err == nil {
		t.Error("the closed adapter's flow is still in the map")
	}
	x.finish()
	if n := r.nic.Counters().Strays; n != 0 {
		t.Errorf("%d segments reached the kernel", n)
	}
}

// TestClosingAnAdapterLeavesAnInterfaceThatItLeft: an adapter has two interfaces of an instance and closes one of them.
// Another adapter opens that interface and takes a connection over. The connection continues when the first adapter
// closes its last interface.
func TestClosingAnAdapterLeavesAnInterfaceThatItLeft(t *testing.T) {
	r := newStage(t, setup{})
	r.loadBoth()
	left := r.openBoth()
	r.Must(left.Close())
	second := r.openSecond()
	_, f := r.runOn(second)
	r.Must(r.nic.Close())
	if _, err := second.Steering().Lookup(f.Key()); err != nil {
		t.Errorf("the entry of the other adapter's flow: %v", err)
	}
}

// secondStats returns what the program of the second interface has counted.
func (r *rig) secondStats() (stats loader.Stats) {
	r.Helper()
	r.in(ours, func() error {
		i, err := loader.ReadInstance(filepath.Join(loader.Root, bothCables))
		for _, p := range i.Ports {
			if p.Name == secondCable {
				stats = p.Stats
			}
			err = errors.Join(err, p.Err)
		}
		return errors.Join(err, i.Err)
	})
	return stats
}

// arrivesAtSecond waits until the program of the second interface, which has no engine,
// has decided on a packet of a flow.
func (r *rig) arrivesAtSecond() {
	r.Helper()
	r.Eventually("packets arrive at the second interface", func() bool {
		s := r.secondStats()
		return s[bpf.NoSocket]+s[bpf.Orphaned] != 0
	})
}

// TestFlowOutlivesTheOtherAdapter: two adapters of one process use the two interfaces of an instance. After one has
// closed, segments of the other's connection arrive at the first one's interface. The program there drops them, and
// does not give the connection up.
func TestFlowOutlivesTheOtherAdapter(t *testing.T) {
	r := newStage(t, setup{})
	r.loadBoth()
	r.open(nic.Config{RxFrames: 512})
	second := r.openSecond()
	x := r.unfinished(32 << 20)
	x.reach(1 << 20)
	r.Must(second.Close())

	r.peerSends("q1")
	r.arrivesAtSecond()
	r.peerSends(r.pair.Ends[theirs].Name)
	if n := r.secondStats()[bpf.Orphaned]; n != 0 || r.entries() != 1 {
		t.Fatalf("the program gave %d flows up, and %d are left, want 0 and 1", n, r.entries())
	}
	x.finish()
}

// TestParkedFlowOutlivesTheOtherAdapter: the same while the connection is being taken over, and has no engine yet.
func TestParkedFlowOutlivesTheOtherAdapter(t *testing.T) {
	r := newStage(t, setup{})
	r.loadBoth()
	second := r.openSecond() // it has lane 0 of the instance
	r.open(nic.Config{RxFrames: 512})
	r.Must(second.Close())
	our, peer := r.connect(way{})
	o := nic.DefaultOptions
	o.Parked = func() error {
		r.peerSends("q1")
		if _, err := peer.Write([]byte("x")); err != nil {
			return err
		}
		r.arrivesAtSecond()
		r.peerSends(r.pair.Ends[theirs].Name)
		if n := r.secondStats()[bpf.Orphaned]; n != 0 || r.entries() != 1 {
			t.Errorf("the program gave %d flows up, and %d are left, want 0 and 1", n, r.entries())
		}
		return nil
	}
	_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), o)
	r.Must(err)
	_, err = readFull(peer, make([]byte, 1))
	r.Must(err)
	r.pingPong(peer)
}

// openThree offloads three local interfaces as one adapter. The first one has a private program. The other two are
// loaded as one instance.
func (r *rig) openThree() (second, third *nic.NIC) {
	r.Helper()
	r.secondCable()
	r.cable("z0", "z1", "198.18.1")
	for _, ends := range [][]string{{secondCable, "q1"}, {"z0", "z1"}} {
		for side, end := range ends {
			r.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
		}
		r.stayOn(ends[0], bothCables)
	}
	r.in(ours, func() error {
		all, err := nic.OpenAll(nic.Config{Link: r.pair.Ends[ours].Name, RxFrames: 512},
			nic.Config{Link: secondCable, RxFrames: 512}, nic.Config{Link: "z0", RxFrames: 512})
		if err != nil {
			return err
		}
		r.nic, second, third = all[0], all[1], all[2]
		return nil
	})
	for _, n := range []*nic.NIC{second, third, r.nic} {
		r.Cleanup(func() { r.Check(n.Close()) })
	}
	return second, third
}

// TestMapServedByTheInterfaceThatIsLeft: two interfaces of an adapter have one map of flows, and one of them closes.
// Connections of a third interface still enter that map, so that their segments may arrive at the interface that is
// left, and leave it.
func TestMapServedByTheInterfaceThatIsLeft(t *testing.T) {
	r := newStage(t, setup{})
	second, third := r.openThree()
	old := r.unfinished(8 << 20)
	old.reach(1 << 20)
	r.Must(second.Close())

	r.Must(old.flow.Abort(r.Ctx()))
	r.Wait(old.flow.Done(), "the end of the connection")
	r.Eventually("the connection leaves the map", func() bool {
		_, err := third.Steering().Lookup(old.flow.Key())
		return errors.Is(err, loader.ErrNoFlow)
	})

	x := r.unfinished(8 << 20)
	if _, err := third.Steering().Lookup(x.flow.Key()); err != nil {
		t.Fatal(err)
	}
	r.peerSends("z1")
	before := r.countersOf(third).PassedOut
	x.reach(4 << 20)
	x.finish()
	if n := r.countersOf(third).PassedOut; n == before {
		t.Error("no segment arrived at the interface that is left")
	}
	if n := r.nic.Counters().Strays + third.Counters().Strays; n != 0 {
		t.Errorf("%d segments reached the kernel", n)
	}
}
