package e2e

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
)

// watched is a rig whose two local interfaces are a group. Both cables lead to a bridge of
// the peer, which has the peer's address. The second interface has no address.
type watched struct {
	*rig
	a    *rdma.Adapter
	nics [2]*nic.NIC
}

func newWatched(t *testing.T, g rdma.Group) *watched {
	t.Helper()
	w := &watched{rig: newStage(t, setup{})}
	w.secondCable()
	first, far := w.pair.Ends[ours].Name, w.pair.Ends[theirs]
	w.ip(theirs, "link", "add", "br0", "type", "bridge")
	for _, name := range []string{far.Name, "q1"} {
		w.ip(theirs, "addr", "flush", "dev", name)
		w.ip(theirs, "link", "set", name, "master", "br0")
	}
	w.ip(theirs, "addr", "add", far.V4.String(), "dev", "br0")
	w.ip(theirs, "addr", "add", far.V6.String(), "dev", "br0", "nodad")
	w.ip(theirs, "link", "set", "br0", "up")
	w.ip(ours, "addr", "flush", "dev", "q0", "scope", "global")
	for side, ends := range [][]string{{first, "q0"}, {far.Name, "q1", "br0"}} {
		for _, name := range ends {
			w.in(pair.Side(side), func() error { return loader.SetTxChecksum(name, false) })
		}
	}
	w.in(ours, func() error { return netns.Sysctl("ipv4/conf/all/arp_ignore", "1") })
	g.Ports = []string{first, "q0"}
	w.in(ours, func() (err error) {
		w.a, err = rdma.Open(rdma.Config{Ports: g.Ports, Groups: []rdma.Group{g}, RegionHeap: 1 << 20, RxFrames: 512})
		return err
	})
	w.Cleanup(func() { w.Check(w.a.Close()) })
	for i, p := range w.a.Device().(*adapter.Adapter).Ports() {
		w.nics[i] = p.NIC()
	}
	w.nic = w.nics[0]
	return w
}

// event waits for an event of a type, and returns it. Events of other types are skipped.
func (w *watched) event(kind rdma.EventType) rdma.Event {
	w.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case e := <-w.a.Events():
			if e.Type == kind {
				return e
			}
		case <-late:
			w.Fatalf("no event %v", kind)
		}
	}
}

// probed gives the group the time for some rounds of probes. Silence proves something only
// of a host that has answered through the port before.
func (w *watched) probed() { time.Sleep(time.Second) }

// addresses returns the output of ip addr show of a local interface.
func (w *watched) addresses(dev string) (out string) {
	w.Helper()
	w.in(ours, func() error {
		b, err := exec.Command("ip", "-o", "addr", "show", "dev", dev, "scope", "global").CombinedOutput()
		out = string(b)
		return err
	})
	return out
}

// silent puts a program on the peer's end of a cable that drops every frame, until the
// caller calls mend. The carrier stays.
func (w *watched) silent(cable int) (mend func()) {
	w.Helper()
	dev := []string{w.pair.Ends[theirs].Name, "q1"}[cable]
	drops, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}, License: "GPL",
	})
	w.Must(err)
	var on link.Link
	w.in(theirs, func() error {
		ifc, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		on, err = link.AttachXDP(link.XDPOptions{Program: drops, Interface: ifc.Index})
		return err
	})
	return func() { w.Check(errors.Join(on.Close(), drops.Close())) }
}

// TestBackup kills the first interface of a group in several ways under two-way fire. Its
// addresses and its connections go on at the second one. When the first has settled, both
// return.
func TestBackup(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name string
		kill func(*watched) (mend func())
	}{
		{"carrier", func(w *watched) func() {
			w.ip(theirs, "link", "set", w.pair.Ends[theirs].Name, "down")
			return func() { w.ip(theirs, "link", "set", w.pair.Ends[theirs].Name, "up") }
		}},
		{"silent", func(w *watched) func() { return w.silent(0) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			w := newWatched(t, rdma.Group{Mode: rdma.GroupBackup, Settle: time.Second, FailBack: true})
			first, v4 := w.pair.Ends[ours].Name, w.addr(ours, false)
			x := w.unfinished(64 << 20)
			x.reach(4 << 20)
			w.probed()
			mend := way.kill(w)
			if e := w.event(rdma.PortFailed); e.Port != first || e.Err == nil {
				t.Errorf("%+v", e)
			}
			x.movesTo(w.nics[1])
			w.Eventually("the address is at the second interface", func() bool {
				return strings.Contains(w.addresses("q0"), v4+"/") && !strings.Contains(w.addresses(first), v4+"/")
			})
			x.reach(24 << 20)
			mend()
			if e := w.event(rdma.PortSettled); e.Port != first {
				t.Errorf("%+v", e)
			}
			x.movesTo(w.nics[0])
			w.Eventually("the address is at the first interface", func() bool { return strings.Contains(w.addresses(first), v4+"/") })
			x.finish()
		})
	}
}

// TestFailedPeerMovesNothing makes the peer unreachable through both interfaces. No port
// fails, and nothing moves.
func TestFailedPeerMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWatched(t, rdma.Group{Mode: rdma.GroupBackup})
	x := w.unfinished(16 << 20)
	x.reach(1 << 20)
	w.probed()
	w.ip(theirs, "link", "set", "br0", "down")
	time.Sleep(2 * time.Second)
	w.ip(theirs, "link", "set", "br0", "up")
	x.finish()
	if x.flow.NIC() != w.nics[0] || !strings.Contains(w.addresses(w.pair.Ends[ours].Name), w.addr(ours, false)) {
		t.Error("the connection or its address has moved")
	}
	for {
		select {
		case e := <-w.a.Events():
			if e.Type == rdma.PortFailed || e.Type == rdma.PathMoved {
				t.Errorf("%v: %+v", e.Type, e)
			}
			continue
		default:
		}
		break
	}
}

// TestDryRun lets a group only say what it would do.
func TestDryRun(t *testing.T) {
	t.Parallel()
	w := newWatched(t, rdma.Group{Mode: rdma.GroupBackup, DryRun: true})
	first, v4 := w.pair.Ends[ours].Name, w.addr(ours, false)
	x := w.unfinished(16 << 20)
	x.reach(1 << 20)
	w.probed()
	mend := w.silent(0)
	w.event(rdma.PortFailed)
	x.movesTo(w.nics[1])
	if !strings.Contains(w.addresses(first), v4+"/") || w.addresses("q0") != "" {
		t.Error("addresses have moved")
	}
	mend()
	x.finish()
}

// TestFlappingPort lets the carrier of the first interface come and go every 50 ms. The
// connection leaves the interface. While the interface flaps, it does not settle, and the
// connection stays away. Later both happen.
func TestFlappingPort(t *testing.T) {
	t.Parallel()
	long := 5 * time.Second
	if os.Getenv("STAG_LONG") == "1" {
		long = time.Minute
	}
	w := newWatched(t, rdma.Group{Mode: rdma.GroupBackup, Settle: 2 * time.Second, FailBack: true})
	first, far := w.pair.Ends[ours].Name, w.pair.Ends[theirs].Name
	our, peer := w.connect(way{})
	volume, last := uint64(long/time.Second)<<20, make(chan struct{})
	x := w.transferBy(our, &talk{conn: peer, send: volume, pace: func(pos uint64) {
		time.Sleep(5 * time.Millisecond)
		if pos >= volume-1<<16 {
			<-last
		}
	}})
	x.last = last
	x.reach(1 << 16)
	w.probed()
	away := false
	for end := time.Now().Add(long); time.Now().Before(end); {
		w.ip(theirs, "link", "set", far, "down")
		time.Sleep(50 * time.Millisecond)
		w.ip(theirs, "link", "set", far, "up")
		time.Sleep(50 * time.Millisecond)
		at := x.flow.NIC()
		if away && at != w.nics[1] {
			t.Fatal("the connection has gone to the interface that flaps")
		}
		away = at == w.nics[1]
	}
	if !away {
		t.Error("the connection has stayed at the interface that flaps")
	}
	w.reported(first, rdma.PortFailed, rdma.PortSettled)
	if e := w.event(rdma.PortSettled); e.Port != first {
		t.Errorf("%+v", e)
	}
	w.Eventually("the connection is at the first interface", func() bool { return x.flow.NIC() == w.nics[0] })
	x.finish()
}

// reported checks the events so far of a port: some of the type wanted, and none of the
// type unwanted.
func (w *watched) reported(port string, wanted, unwanted rdma.EventType) {
	w.Helper()
	seen := 0
	for {
		select {
		case e := <-w.a.Events():
			switch {
			case e.Port != port:
			case e.Type == wanted:
				seen++
			case e.Type == unwanted:
				w.Errorf("%v %s: %v", e.Type, e.Port, e.Err)
			}
			continue
		default:
		}
		break
	}
	if seen == 0 {
		w.Errorf("no event %v of %s", wanted, port)
	}
}
