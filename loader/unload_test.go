package loader_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// portDir returns the directory of the pins of a loaded interface.
func portDir(l loader.Link) string {
	return filepath.Join(instance, fmt.Sprintf("%d-%d", l.Netns, l.PortIndex))
}

// unpinned checks that nothing of the instance is left.
func unpinned(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(instance); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", instance, err)
	}
}

// TestUnloadDeadFlows checks that the flows of a dead process do not prevent the
// unload, and are counted.
func TestUnloadDeadFlows(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	o := startOther(t, p, pair.A, "stay")
	s := mustLoad(t, p, loader.Options{Pin: instance})
	for i := range 3 {
		f := bpf.Flow{ID: bpf.FlowID(i), PID: uint32(o.Process.Pid)}
		if err := s.Insert(key(t, fmt.Sprintf("192.0.2.2:%d", 40000+i), "192.0.2.1:4420"), f); err != nil {
			t.Fatal(err)
		}
	}
	rig.Says(t, unload(), loader.ErrQueueBusy, fmt.Sprintf("pid %d (exe) with 3 flows", o.Process.Pid))
	o.kill(t)
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	if err != nil || len(done) != 1 || done[0].Left != 3 || done[0].Lost != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	unpinned(t)
}

// adopted loads a pinned program, and starts the helper what, which adopts it.
func adopted(t *testing.T, what string) (*pair.Pair, *other) {
	t.Helper()
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	o := startOther(t, p, pair.A, what)
	if o.said != "ready" {
		t.Fatal(o.said)
	}
	return p, o
}

// TestUnloadAdopted checks that the process that adopted the program keeps it, with or
// without flows. No other process can adopt it until then.
func TestUnloadAdopted(t *testing.T) {
	p, o := adopted(t, "adopt")
	pid := fmt.Sprintf("pid %d", o.Process.Pid)
	rig.Says(t, unload(), loader.ErrQueueBusy, pid, "without a connection: end that first", "--force")
	_, err := adopt(p)
	rig.Says(t, err, loader.ErrQueueBusy, pid)
	if i := onePort(t, instanceIn(t, p, pair.A)); !i.InUse || i.Owner.PID != o.Process.Pid {
		t.Errorf("in use %v, by %+v", i.InUse, i.Owner)
	}
	o.kill(t)
	s, err := adopt(p)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := unload(); err != nil {
		t.Fatal(err)
	}
	unpinned(t)
}

// TestUnloadOfContainer checks that Unload finds an engine whose claims and pid belong
// to a container.
func TestUnloadOfContainer(t *testing.T) {
	p, o := adopted(t, "adopt in a container")
	if i := onePort(t, instanceIn(t, p, pair.A)); len(i.Flows) != 1 || i.Flows[0].PID != 1 || i.InUse {
		t.Fatalf("not as in a container, so this proves nothing: %+v", i)
	}
	rig.Says(t, unload(), loader.ErrQueueBusy, fmt.Sprintf("pid %d (exe) with 1 flow", o.Process.Pid))
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true})
	if err != nil || len(done) != 1 || done[0].Lost != 1 || done[0].Port.Users()[o.Process.Pid] != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestUnloadOneOfTwo checks that the other interface of the instance keeps its program.
func TestUnloadOneOfTwo(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	a := mustLoad(t, p, loader.Options{Pin: instance})
	netns.In(t, p, pair.B, func() error {
		s, err := loader.Load(loader.Options{Link: p.Ends[pair.B].Name, Pin: instance})
		if err == nil {
			s.Close()
		}
		return err
	})
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Port: portDir(a.Link())})
	if err != nil || len(done) != 1 || done[0].Port.ProgID != a.ProgID() {
		t.Fatalf("%+v, %v", done, err)
	}
	if left := onePort(t, instanceIn(t, p, pair.B)); left.Name != p.Ends[pair.B].Name {
		t.Errorf("left: %+v", left)
	}
	_, err = loader.Unload(loader.UnloadOptions{Instance: instance, Port: portDir(a.Link())})
	rig.Says(t, err, loader.ErrNotPinned)
	if err := unload(); err != nil {
		t.Fatal(err)
	}
	unpinned(t)
}

// TestUnloadRefusesForAll checks that one interface in use prevents the unload of the
// whole instance. The refused unload changes nothing.
func TestUnloadRefusesForAll(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	a := mustLoad(t, p, loader.Options{Pin: instance})
	netns.In(t, p, pair.B, func() error {
		s, err := loader.Load(loader.Options{Link: p.Ends[pair.B].Name, Pin: instance})
		if err == nil {
			s.Close()
		}
		return err
	})
	mustClaim(t, a.Link(), 0)
	rig.Says(t, unload(), loader.ErrQueueBusy)
	if i := instanceIn(t, p, pair.A); len(i.Ports) != 2 || i.Ports[0].Stale+i.Ports[1].Stale != "" {
		t.Errorf("%+v", i)
	}
}

// TestUnloadOfAllFailsForOne checks an unload of all interfaces that fails for one of
// them: the flow map stays, but the flows of the other interface are removed from it.
func TestUnloadOfAllFailsForOne(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	o := startOther(t, p, pair.A, "stay")
	a := mustLoad(t, p, loader.Options{Pin: instance})
	b, err := loadB(t, p, loader.Options{Pin: instance})
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(loader.RuntimeDir, "settings-"+filepath.Base(portDir(b.Link())))
	if err := os.WriteFile(settings, []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(settings) })
	ofA, ofB := key(t, "192.0.2.2:40000", "192.0.2.1:4420"), key(t, "192.0.2.2:40001", "192.0.2.1:4420")
	for s, k := range map[*loader.Steering]bpf.FlowKey{a: ofA, b: ofB} {
		if err := s.Insert(k, bpf.Flow{ID: 1, PID: uint32(o.Process.Pid)}); err != nil {
			t.Fatal(err)
		}
	}
	o.kill(t)
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	rig.Says(t, err, nil, settings)
	if len(done) != 1 || done[0].Port.ProgID != a.ProgID() {
		t.Errorf("unloaded: %+v", done)
	}
	lookups(t, ofA, false, b)
	lookups(t, ofB, true, b)
	if err := os.Remove(settings); err != nil {
		t.Fatal(err)
	}
	if err := unload(); err != nil {
		t.Fatal(err)
	}
	unpinned(t)
}

func TestUnloadOtherLayout(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	otherLayout(t)
	rig.Says(t, unload(), loader.ErrLayout, "version 77", "--force")
	if _, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true}); err != nil {
		t.Fatal(err)
	}
	unpinned(t)
	mustLoad(t, p, loader.Options{})
}

// TestMovedInterface checks that the program stays on an interface that is renamed and
// moved to another namespace. It can be adopted there, and unloaded from anywhere.
func TestMovedInterface(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	id := s.ProgID()
	s.Close()
	there := netns.Pair(t, pair.Config{})
	var space *os.File
	netns.In(t, there, pair.B, func() (err error) {
		space, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer space.Close()
	netns.In(t, p, pair.A, func() error {
		l, err := netlink.LinkByName(p.Ends[pair.A].Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(space.Fd()))
	})
	netns.In(t, there, pair.B, func() error {
		dir, err := loader.InstanceOn(p.Ends[pair.A].Name)
		if err != nil || dir != instance {
			t.Errorf("the instance is %q, %v", dir, err)
		}
		s, err := loader.Adopt(p.Ends[pair.A].Name)
		if err != nil {
			return err
		}
		if s.ProgID() != id || s.Instance() != instance {
			t.Errorf("adopted program %d of %s", s.ProgID(), s.Instance())
		}
		got, err := loader.ReadInstance(instance)
		if err == nil && !onePort(t, got).InUse {
			t.Error("adopted, and not in use")
		}
		s.Close()
		return err
	})
	if err := unload(); err != nil { // called in the test's own namespace
		t.Fatal(err)
	}
	unpinned(t)
	netns.In(t, there, pair.B, func() error {
		l, err := netlink.LinkByName(p.Ends[pair.A].Name)
		if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			t.Error("the program is still on the interface")
		}
		return err
	})
}

// TestLoadsAtOnce checks that only one of many loads of an interface succeeds, and that
// the others fail with ErrAlreadyLoaded. Loads of different interfaces into one
// instance, and unloads of the instance, do not disturb each other.
func TestLoadsAtOnce(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	for range 5 {
		var loaded [2]int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 6 {
			side := pair.Side(i % 2)
			wg.Go(func() {
				p.Do(side, func() error {
					s, err := loader.Load(loader.Options{Link: p.Ends[side].Name, Pin: instance})
					if err != nil {
						rig.Says(t, err, loader.ErrAlreadyLoaded)
						return nil
					}
					mu.Lock()
					loaded[side]++
					mu.Unlock()
					return s.Close()
				})
			})
		}
		wg.Wait()
		if i := instanceIn(t, p, pair.A); loaded != [2]int{1, 1} || len(i.Ports) != 2 || i.Err != nil || i.Ports[0].Err != nil || i.Ports[1].Err != nil {
			t.Fatalf("loaded %v; %+v", loaded, i)
		}
		if err := unload(); err != nil {
			t.Fatal(err)
		}
		unpinned(t)
	}
}

// TestAdoptChanged adopts an interface that has other queues than at the load.
func TestAdoptChanged(t *testing.T) {
	p := netns.Pair(t, pair.Config{Queues: 4})
	need.XDP(t)
	unloadAfter(t)
	netns.In(t, p, pair.B, func() error { return loader.SetChannels(p.Ends[pair.B].Name, 4, 2) })
	netns.In(t, p, pair.A, func() error { return loader.SetChannels(p.Ends[pair.A].Name, 2, 4) })
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	netns.In(t, p, pair.A, func() error { return loader.SetChannels(p.Ends[pair.A].Name, 3, 4) })
	_, err := adopt(p)
	rig.Says(t, err, loader.ErrChannels, "3 queues", "loaded for 2", "stag unload")
	netns.In(t, p, pair.A, func() error { return loader.SetChannels(p.Ends[pair.A].Name, 2, 4) })
	s, err := adopt(p)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestUnloadWithoutRights checks that the error is one line and that nothing changes.
func TestUnloadWithoutRights(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	o := startOther(t, p, pair.A, "unload as nobody")
	rig.Says(t, errors.New(o.said), nil, "root")
	if got := onePort(t, instanceIn(t, p, pair.A)); got.Stale != "" {
		t.Errorf("%+v", got)
	}
}
