package loader_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// loadB loads the program for side B's interface.
func loadB(t *testing.T, p *pair.Pair, o loader.Options) (s *loader.Steering, err error) {
	t.Helper()
	o.Link = p.Ends[pair.B].Name
	err = p.Do(pair.B, func() (err error) {
		s, err = loader.Load(o)
		return err
	})
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

// lookups checks that a flow is on all interfaces, or on none.
func lookups(t *testing.T, k bpf.FlowKey, there bool, all ...*loader.Steering) {
	t.Helper()
	for _, s := range all {
		if _, err := s.Lookup(k); there != (err == nil) || err != nil && !errors.Is(err, loader.ErrNoFlow) {
			t.Errorf("%v on %s: %v, want it there: %v", k, s.Link().Name, err, there)
		}
	}
}

// Two interfaces of an instance share one flow map, and so do two interfaces of a
// process. Each interface lists its own flows.
func TestInterfacesShareFlows(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		t.Run(fmt.Sprintf("pinned %v", pinned), func(t *testing.T) {
			p := netns.Pair(t, pair.Config{})
			unloadAfter(t)
			o := loader.Options{MaxFlows: 10}
			if pinned {
				o.Pin = instance
			}
			a := mustLoad(t, p, o)
			with := loader.Options{Pin: o.Pin}
			if !pinned {
				with.With = a
			}
			b, err := loadB(t, p, with)
			if err != nil {
				t.Fatal(err)
			}
			if !a.SharesFlows(b) || b.MaxFlows() != 10 {
				t.Fatalf("the interfaces share flows: %v, room for %d", a.SharesFlows(b), b.MaxFlows())
			}
			k := key(t, "192.0.2.2:40000", "192.0.2.1:4420")
			if err := a.Insert(k, bpf.Flow{ID: 1, Queue: 3}); err != nil {
				t.Fatal(err)
			}
			lookups(t, k, true, a, b)
			for s, want := range map[*loader.Steering]int{a: 1, b: 0} {
				n := 0
				err := s.Flows(func(_ bpf.FlowKey, f bpf.Flow) bool {
					n++
					return f.Program == a.ProgID()
				})
				if err != nil || n != want {
					t.Errorf("%s lists %d flows, want %d: %v", s.Link().Name, n, want, err)
				}
			}
			if err := b.Delete(k); err != nil {
				t.Error(err)
			}
			lookups(t, k, false, a, b)
		})
	}
}

// A private program of another process or of another adapter has its own flow map.
func TestInterfacesOfTwoAdaptersShareNothing(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	a := mustLoad(t, p, loader.Options{})
	b, err := loadB(t, p, loader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := key(t, "192.0.2.2:40000", "192.0.2.1:4420")
	if err := a.Insert(k, bpf.Flow{ID: 1}); err != nil {
		t.Fatal(err)
	}
	lookups(t, k, false, b)
	if a.SharesFlows(b) {
		t.Error("they share flows")
	}
}

// The second interface of an instance has the same room as the first. A load that asks
// for another size fails.
func TestRoomIsTheInstances(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance, MaxFlows: 10})
	_, err := loadB(t, p, loader.Options{Pin: instance, MaxFlows: 11})
	rig.Says(t, err, loader.ErrAlreadyLoaded, "room for 11 flows", "room for 10")
	if _, err := loadB(t, p, loader.Options{Pin: instance, MaxFlows: 10}); err != nil {
		t.Error(err)
	}
}

// A killed load does not determine the room of the next load, on this interface or on
// another.
func TestRoomAfterKilledLoad(t *testing.T) {
	for _, side := range []pair.Side{pair.A, pair.B} {
		t.Run(side.String(), func(t *testing.T) {
			p := netns.Pair(t, pair.Config{})
			need.XDP(t)
			unloadAfter(t)
			dies(t, p, "load until shared maps")
			if _, err := os.Stat(instance + "/" + bpf.MapFlows4); err != nil {
				t.Fatal(err)
			}
			load := map[pair.Side]func(loader.Options) (*loader.Steering, error){
				pair.A: func(o loader.Options) (*loader.Steering, error) { return load(p, o) },
				pair.B: func(o loader.Options) (*loader.Steering, error) { return loadB(t, p, o) },
			}[side]
			s, err := load(loader.Options{Pin: instance, MaxFlows: 10})
			if err != nil {
				t.Fatal(err)
			}
			if n := s.MaxFlows(); n != 10 {
				t.Errorf("room for %d flows, want 10", n)
			}
		})
	}
}

// A load over the pins of a killed unload removes the flows of the earlier program.
func TestLoadOverKilledUnload(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	a := mustLoad(t, p, loader.Options{Pin: instance})
	b, err := loadB(t, p, loader.Options{Pin: instance})
	if err != nil {
		t.Fatal(err)
	}
	ofA, ofB := key(t, "192.0.2.2:40000", "192.0.2.1:4420"), key(t, "192.0.2.2:40001", "192.0.2.1:4420")
	for s, k := range map[*loader.Steering]bpf.FlowKey{a: ofA, b: ofB} {
		if err := s.Insert(k, bpf.Flow{ID: 1}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := link.LoadPinnedLink(portDir(a.Link())+"/link", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil { // the first step of an unload
		t.Fatal(err)
	}
	again := mustLoad(t, p, loader.Options{Pin: instance})
	lookups(t, ofA, false, again, b)
	lookups(t, ofB, true, again, b)
}

// The unload of one interface removes its flows from the shared map. It leaves the
// flows of the other interface.
func TestUnloadKeepsTheOthersFlows(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	o := startOther(t, p, pair.A, "stay")
	a := mustLoad(t, p, loader.Options{Pin: instance})
	b, err := loadB(t, p, loader.Options{Pin: instance})
	if err != nil {
		t.Fatal(err)
	}
	ofA, ofB := key(t, "192.0.2.2:40000", "192.0.2.1:4420"), key(t, "192.0.2.2:40001", "192.0.2.1:4420")
	for s, k := range map[*loader.Steering]bpf.FlowKey{a: ofA, b: ofB} {
		if err := s.Insert(k, bpf.Flow{PID: uint32(o.Process.Pid)}); err != nil {
			t.Fatal(err)
		}
	}
	o.kill(t)
	i := instanceIn(t, p, pair.A)
	for _, port := range i.Ports {
		if len(port.Flows) != 1 {
			t.Errorf("%s has %d flows, want 1", port.Dir, len(port.Flows))
		}
	}
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Port: portDir(a.Link())})
	if err != nil || len(done) != 1 || done[0].Left != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	lookups(t, ofA, false, b)
	lookups(t, ofB, true, b)
	if left := onePort(t, instanceIn(t, p, pair.B)); len(left.Flows) != 1 {
		t.Errorf("%d flows are left, want the other interface's", len(left.Flows))
	}
	if err := unload(); err != nil {
		t.Fatal(err)
	}
	unpinned(t)
}

// The adoption of one interface removes the flows of dead processes on all interfaces
// of the instance. It leaves the flows of living processes.
func TestClearLeavesFlowsOfLivingProcesses(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	lives, died := startOther(t, p, pair.A, "stay"), startOther(t, p, pair.A, "stay")
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	b, err := loadB(t, p, loader.Options{Pin: instance})
	if err != nil {
		t.Fatal(err)
	}
	keep, gone := key(t, "192.0.2.2:40000", "192.0.2.1:4420"), key(t, "192.0.2.2:40001", "192.0.2.1:4420")
	for k, pid := range map[bpf.FlowKey]int{keep: lives.Process.Pid, gone: died.Process.Pid} {
		if err := b.Insert(k, bpf.Flow{PID: uint32(pid)}); err != nil {
			t.Fatal(err)
		}
	}
	died.kill(t)
	a, err := adopt(p)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n, err := a.Clear(); n != 1 || err != nil {
		t.Errorf("%d flows removed, %v; want 1", n, err)
	}
	lookups(t, keep, true, a, b)
	lookups(t, gone, false, a, b)
	lives.kill(t)
}

// The adoption of one interface leaves the flows of an engine in a container on another
// interface, although the engine's pid means nothing here. When the engine has died,
// the next adoption removes them.
func TestClearLeavesFlowsOfContainers(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	b, err := loadB(t, p, loader.Options{Pin: instance})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	o := startOther(t, p, pair.B, "own a lane in a container")
	if o.said != "ready" {
		t.Fatal(o.said)
	}
	for _, died := range []bool{false, true} {
		a, err := adopt(p)
		if err != nil {
			t.Fatal(err)
		}
		want, slot := 0, uint16(1)
		if died {
			want, slot = len(containerFlows), 0 // the caller gets the slot of the dead engine
		}
		own := mustReserve(t, a, 1, slot)
		if n, err := a.Clear(own); n != want || err != nil {
			t.Errorf("%d flows removed, %v; want %d", n, err, want)
		}
		for _, k := range containerFlows {
			lookups(t, k, !died, a)
		}
		mustClose(t, own)
		a.Close()
		if !died {
			o.kill(t)
		}
	}
}

// The unload leaves maps of another layout version unchanged, and still unloads the
// interface.
func TestUnloadOfAnotherLayout(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	otherLayout(t)
	if _, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true}); err != nil {
		t.Error(err)
	}
	unpinned(t)
	if _, err := os.Stat(instance + "/flows"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the map of flows: %v", err)
	}
}
