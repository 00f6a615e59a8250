package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/tpt"
)

// loaded loads the pinned program on the local interface until the test ends.
func (r *rig) loaded(o loader.Options) (instance string) {
	r.Helper()
	o.Link = r.pair.Ends[ours].Name
	o.Pin = filepath.Join(loader.Root, o.Link)
	r.in(ours, func() error {
		s, err := loader.Load(o)
		if err == nil {
			err = s.Close()
		}
		return err
	})
	r.Cleanup(func() {
		_, err := loader.Unload(loader.UnloadOptions{Instance: o.Pin, Force: true})
		if err != nil && !errors.Is(err, loader.ErrNotPinned) {
			r.Error(err)
		}
	})
	return o.Pin
}

// pinned reads an instance of one interface.
func (r *rig) pinned(instance string) (i loader.Instance, p loader.PinnedPort) {
	r.Helper()
	r.in(ours, func() (err error) {
		i, err = loader.ReadInstance(instance)
		return err
	})
	if i.Err != nil || len(i.Ports) != 1 || i.Ports[0].Err != nil {
		r.Fatalf("%+v", i)
	}
	return i, i.Ports[0]
}

// registered returns how many entries of the pinned table are in use, read as another process would.
func (r *rig) registered(i loader.Instance) (n int) {
	r.Helper()
	if i.Table == nil {
		r.Fatal("no table is pinned")
	}
	r.Must(i.Table.Read(func(memory []byte) error {
		v, err := tpt.NewView(memory)
		for e := range v.Len() {
			if _, ok := v.Entry(e); ok {
				n++
			}
		}
		return err
	}))
	return n
}

// TestAdopted checks that an adapter on a loaded interface adopts the program and communicates with an adapter with a
// private program. Other processes can read its state meanwhile. The program stays when the adapter closes, twice.
func TestAdopted(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{})
	program := r.link(ours).Attrs().Xdp.ProgId
	b := r.adapter(theirs, rdma.Config{})
	for round := range 2 {
		a := r.adapter(ours, rdma.Config{MaxRegions: 100 << round})
		from, to := r.newVerbs(ours, a), r.newVerbs(theirs, b)
		from.receives(verbsRecs)
		to.receives(verbsRecs)
		r.meet(from, to, b, false, rdma.ConnParams{}, rdma.ConnParams{})
		if path := from.qp.Conn().Path; !strings.Contains(path, "adopted from instance "+filepath.Base(instance)) {
			t.Errorf("the path is %q", path)
		}
		if path := to.qp.Conn().Path; strings.Contains(path, "adopted") {
			t.Errorf("the other end's path is %q", path)
		}
		from.work(to)
		i, p := r.pinned(instance)
		if !p.InUse || p.Owner.PID != os.Getpid() || len(p.Flows) != 1 || p.Live()[os.Getpid()] != 1 || p.Flows[0].Kind != bpf.KindRDMA ||
			p.Stats[bpf.Steered] == 0 || p.ProgID != program {
			t.Errorf("%+v", p)
		}
		if n := r.registered(i); n < 4 || !i.Table.InUse {
			t.Errorf("%d entries of the table are in use", n)
		}
		from.part(to)
		r.Must(a.Close())
		i, p = r.pinned(instance)
		if x := r.link(ours).Attrs().Xdp; x == nil || x.ProgId != program || p.InUse || len(p.Flows) != 0 || i.Table == nil || i.Table.InUse {
			t.Errorf("after Close: %+v", i)
		}
		r.greets() // the kernel has the interface again
	}
}

// greets makes the kernels of both sides exchange octets.
func (r *rig) greets() {
	r.Helper()
	our, peer := r.connect(way{})
	defer our.Close()
	defer peer.Close()
	_, err := our.Write([]byte("hello"))
	r.Must(err)
	_, err = readFull(peer, make([]byte, 5))
	r.Must(err)
}

// TestAdoptedKilled kills an engine on a loaded interface, which leaves flows. Their packets are dropped and counted
// for the set time, until the next engine adopts the program. That engine removes the flows, and the peers are reset.
func TestAdoptedKilled(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{OrphanWait: time.Hour})
	v, k, silent := r.startBusyVictim()
	v.kill()
	r.Eventually("packets of the flows are dropped", func() bool {
		_, p := r.pinned(instance)
		return p.Stats[bpf.NoSocket] > 0
	})
	_, p := r.pinned(instance)
	if len(p.Flows) != 2 || len(p.Live()) != 0 || p.InUse {
		t.Errorf("left: %+v", p)
	}

	r.open(nic.Config{})
	if got := r.nic.Path().Instance; got != filepath.Base(instance) {
		t.Errorf("the path is %v", r.nic.Path())
	}
	if _, p := r.pinned(instance); len(p.Flows) != 0 || p.Owner.PID != os.Getpid() {
		t.Errorf("adopted: %+v", p)
	}
	r.isReset(<-k.wrote)
	<-k.read
	r.isResetAtLast(silent)
	our, peer := r.connect(way{})
	r.take(our, octets.NewEcho())
	r.pingPong(peer)
}

// TestUnloadLive checks that an unload is refused while an engine uses the program. A forced unload reports what was
// lost.
func TestUnloadLive(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{})
	v, k, _ := r.startBusyVictim()
	_, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	if !errors.Is(err, loader.ErrQueueBusy) || !strings.Contains(err.Error(), "with 2 flows") {
		t.Fatalf("unload: %v", err)
	}
	before := k.received.Load()
	r.Eventually("octets still flow", func() bool { return k.received.Load() > before+1<<20 })
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true})
	if err != nil || len(done) != 1 || done[0].Lost != 2 || done[0].Port.Owner.PID != v.cmd.Process.Pid {
		t.Fatalf("forced: %+v, %v", done, err)
	}
	if x := r.link(ours).Attrs().Xdp; x != nil && x.Attached {
		t.Error("the program is still there")
	}
	v.kill()
	k.conn.Close()
	<-k.wrote
	<-k.read
	r.open(nic.Config{}) // with a private program
	if got := r.nic.Path().Instance; got != "" {
		t.Errorf("adopted from %q", got)
	}
}

// TestAdoptedRoom checks that a program has room for as many flows as the load asked for.
func TestAdoptedRoom(t *testing.T) {
	r := newStage(t, setup{})
	r.loaded(loader.Options{MaxFlows: 2})
	err := r.pair.Do(ours, func() error {
		n, err := nic.Open(nic.Config{Link: r.pair.Ends[ours].Name, MaxFlows: 3})
		if err == nil {
			n.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "--max-flows 3") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("room for 2, asked for 3: %v", err)
	}
	r.open(nic.Config{})
	for range 2 {
		our, peer := r.connect(way{})
		r.take(our, octets.NewEcho())
		r.pingPong(peer)
	}
}

// TestLoadedGeneric checks that an adopted program keeps the mode in which it was loaded.
func TestLoadedGeneric(t *testing.T) {
	r := newStage(t, setup{before: func(p *pair.Pair) {
		for _, side := range []pair.Side{ours, theirs} {
			if err := p.Do(side, func() error { return loader.SetGRO(p.Ends[side].Name, false) }); err != nil {
				t.Fatal(err)
			}
		}
	}})
	r.loaded(loader.Options{Generic: true})
	r.open(nic.Config{})
	if got := r.nic.Path(); got.XDP != loader.Generic || got.Instance == "" {
		t.Errorf("%v", got)
	}
	our, peer := r.connect(way{})
	r.take(our, octets.NewEcho())
	r.pingPong(peer)
}
