package loader_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// loadSides loads side A of n pairs as one instance. It gives each interface two flows
// without an engine.
func loadSides(t *testing.T, n int) (pairs []*pair.Pair, all []*loader.Steering) {
	t.Helper()
	unloadAfter(t)
	for i := range n {
		p := netns.Pair(t, pair.Config{})
		s := mustLoad(t, p, loader.Options{Pin: instance})
		for j := range 2 {
			k := key(t, fmt.Sprintf("192.0.2.2:%d", 40000+2*i+j), "192.0.2.1:4420")
			if err := s.Insert(k, bpf.Flow{PID: noPID}); err != nil {
				t.Fatal(err)
			}
		}
		pairs, all = append(pairs, p), append(all, s)
	}
	return pairs, all
}

// loadFrozen does the same as loadSides, and makes the kernel refuse every change of
// the flow map.
func loadFrozen(t *testing.T, n int) (pairs []*pair.Pair, all []*loader.Steering) {
	t.Helper()
	pairs, all = loadSides(t, n)
	m, err := ebpf.LoadPinnedMap(instance+"/"+bpf.MapFlows4, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Freeze(); err != nil {
		t.Fatal(err)
	}
	return pairs, all
}

// removeLink removes side A's interface.
func removeLink(t *testing.T, p *pair.Pair) {
	t.Helper()
	netns.In(t, p, pair.A, func() error {
		l, err := netlink.LinkByName(p.Ends[pair.A].Name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

// An interface is unloaded even if its flows cannot be removed from the shared map. The
// error is one line and names the interface.
func TestUnloadWithoutItsFlows(t *testing.T) {
	pairs, all := loadFrozen(t, 2)
	dir := portDir(all[0].Link())
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Port: dir})
	rig.Says(t, err, os.ErrPermission, fmt.Sprintf("interface %d of instance", all[0].Link().PortIndex))
	if len(done) != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%d interfaces unloaded: %v", len(done), err)
	}
	if on, err := all[0].Attached(); on || err != nil {
		t.Errorf("the program is attached: %v, %v", on, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
	if left := onePort(t, instanceIn(t, pairs[1], pair.A)); left.ProgID != all[1].ProgID() {
		t.Errorf("left: %+v", left)
	}
}

// The unload of all interfaces removes the flow map without changing it first.
func TestUnloadOfAllChangesNoMap(t *testing.T) {
	loadFrozen(t, 2)
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	if len(done) != 2 || err != nil {
		t.Errorf("%d interfaces unloaded, %v", len(done), err)
	}
	unpinned(t)
}

// Sweep handles all interfaces, even if the flows of a deleted interface cannot be
// removed.
func TestSweepContinues(t *testing.T) {
	pairs, all := loadFrozen(t, 3)
	removeLink(t, pairs[0])
	removeLink(t, pairs[1])
	var done []string
	var err error
	netns.In(t, pairs[2], pair.A, func() error {
		done, err = loader.Sweep()
		return nil
	})
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v, want what was refused", err)
	}
	for i, s := range all[:2] {
		dir := portDir(s.Link())
		if !strings.Contains(strings.Join(done, "\n"), dir) {
			t.Errorf("interface %d: the pins in %s are not among what was removed: %q", i, dir, done)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("interface %d: %s: %v", i, dir, err)
		}
	}
	if left := onePort(t, instanceIn(t, pairs[2], pair.A)); left.ProgID != all[2].ProgID() {
		t.Errorf("left: %+v", left)
	}
}

// An interface is deleted while Sweep removes the pins of another interface. Sweep must
// not unload a third interface, which still has its program.
func TestSweepKeepsTheLiving(t *testing.T) {
	pairs, all := loadSides(t, 3)
	removeLink(t, pairs[0])
	loader.SetLoadStep(func(done string) {
		if done == "swept interfaces" {
			removeLink(t, pairs[1])
		}
	})
	t.Cleanup(func() { loader.SetLoadStep(func(string) {}) })
	done, err := loader.Sweep()
	if len(done) != 1 || err != nil {
		t.Errorf("%q, %v", done, err)
	}
	for i, want := range []bool{false, true, true} {
		if _, err := os.Stat(portDir(all[i].Link())); (err == nil) != want {
			t.Errorf("interface %d: the pins are there: %v, want %v", i, err == nil, want)
		}
	}
	if on, err := all[2].Attached(); !on || err != nil {
		t.Errorf("the third interface has its program: %v, %v", on, err)
	}
	if _, err := os.Stat(instance + "/" + bpf.MapFlows4); err != nil {
		t.Error(err)
	}
}
