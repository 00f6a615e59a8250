package e2e

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// TestOrphansAreReset kills an engine on a loaded interface. No engine adopts the program. A peer that sends is reset
// within the set time and one retransmission, and the flow is removed. A silent peer is reset when it sends.
func TestOrphansAreReset(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{})
	if _, p := r.pinned(instance); p.OrphanWait != loader.DefaultOrphanWait {
		t.Errorf("orphans wait for %v", p.OrphanWait)
	}
	v, k, silent := r.startBusyVictim()
	v.kill()
	r.isReset(<-k.wrote)
	<-k.read
	_, p := r.pinned(instance)
	if len(p.Flows) != 1 || p.InUse || p.Stats[bpf.Orphaned] != 1 || p.Stats[bpf.NoSocket] == 0 {
		t.Errorf("left: %+v", p)
	}
	r.isResetAtLast(silent)
	if _, p := r.pinned(instance); len(p.Flows) != 0 {
		t.Errorf("left: %+v", p.Flows)
	}
}

// TestOrphansOfAStagPeer kills an engine whose peer is an engine, too.
func TestOrphansOfAStagPeer(t *testing.T) {
	r := newStage(t, setup{})
	r.loaded(loader.Options{OrphanWait: loader.NoOrphanWait})
	var n *nic.NIC
	r.in(theirs, func() (err error) {
		n, err = nic.Open(nic.Config{Link: r.pair.Ends[theirs].Name})
		return err
	})
	r.Cleanup(func() { r.Check(n.Close()) })
	l := r.listen(theirs, false)
	v := r.startVictim(l.Addr().String())
	busy, _ := r.accept(l), r.accept(l)
	ulp := octets.NewTransfer(octets.Plan{Send: 1 << 40, Seed: seedTheirs, Expect: 1 << 40, PeerSeed: seedOurs, Hold: true})
	_, err := n.Take(r.Ctx(), busy, ulp, nic.DefaultOptions)
	r.Must(err)
	v.ready()
	r.Eventually("octets flow both ways", func() bool { return ulp.Received() > 1<<20 && ulp.Sent() > 1<<20 })
	v.kill()
	r.Wait(ulp.Done(), "the end of the connection")
	if err := ulp.Err(); !errors.Is(err, stream.ErrReset) {
		r.Errorf("the peer got %v, want a reset", err)
	}
}

// TestStoppedEngineKeepsItsFlows stops an engine for longer than orphans are kept. Afterwards the engine continues with
// its connections.
func TestStoppedEngineKeepsItsFlows(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{OrphanWait: loader.NoOrphanWait})
	v, k, _ := r.startBusyVictim()
	busy := k.conn
	r.Must(v.cmd.Process.Signal(unix.SIGSTOP))
	sent := r.retransmits(busy)
	r.Eventually("the peer sends again", func() bool { return r.retransmits(busy) >= sent+3 })
	r.Must(v.cmd.Process.Signal(unix.SIGCONT))
	before := k.received.Load()
	r.Eventually("octets flow again", func() bool { return k.received.Load() > before+1<<20 })
	if _, p := r.pinned(instance); len(p.Flows) != 2 || p.Stats[bpf.Orphaned] != 0 {
		t.Errorf("%+v", p)
	}
}

// retransmits returns how many segments of c the kernel has retransmitted.
func (r *rig) retransmits(c *net.TCPConn) (n uint32) {
	r.Helper()
	r.Must(control(c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err == nil {
			n = info.Total_retrans
		}
		return err
	}))
	return n
}
