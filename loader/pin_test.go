package loader_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// instance is the directory of the tests' pins. TestMain has mounted a BPF file system
// that only these tests see.
const instance = "/sys/fs/bpf/stag/test"

func adopt(p *pair.Pair) (s *loader.Steering, err error) {
	err = p.Do(pair.A, func() (err error) {
		s, err = loader.Adopt(p.Ends[pair.A].Name)
		return err
	})
	return s, err
}

// unloadAfter unloads at the end of the test, so that a failed test does not disturb
// the next.
func unloadAfter(t *testing.T) {
	t.Cleanup(func() { loader.Unload(loader.UnloadOptions{Instance: instance, Force: true}) })
}

// unload unloads the tests' instance.
func unload() error {
	_, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	return err
}

func TestPinnedStays(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	k := key(t, "192.0.2.2:40000", "192.0.2.1:4420")
	s := mustLoad(t, p, loader.Options{Pin: instance, MaxFlows: 100})
	if err := s.Insert(k, bpf.Flow{ID: 1, Kind: bpf.KindRDMA, State: bpf.Live}); err != nil {
		t.Fatal(err)
	}
	id := s.ProgID()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// No process has the program open. The kernel still does not get the flow's
	// packets.
	if err := knock(t, p, 4420); !os.IsTimeout(err) {
		t.Errorf("pinned, with a flow: %v, want silence", err)
	}
	again, err := adopt(p)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.ProgID() != id || again.Mode() != loader.Native || again.MaxFlows() != 100 || again.Queues() != 1 {
		t.Errorf("adopted program %d, mode %v, %d flows, %d queues", again.ProgID(), again.Mode(), again.MaxFlows(), again.Queues())
	}
	if f, err := again.Lookup(k); err != nil || f.ID != 1 {
		t.Errorf("the flow: %v, %v", f, err)
	}
	stats, err := again.Stats()
	if err != nil || stats[bpf.NoSocket] == 0 {
		t.Errorf("counters: %v, %v", stats, err)
	}
	_, err = load(p, loader.Options{Pin: instance})
	rig.Says(t, err, loader.ErrAlreadyLoaded, "unload")
	_, err = load(p, loader.Options{})
	rig.Says(t, err, loader.ErrAlreadyLoaded)
	rig.Says(t, unload(), loader.ErrQueueBusy, fmt.Sprintf("pid %d ", os.Getpid()), "1 flow", "--force")
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true})
	if err != nil || len(done) != 1 || done[0].Lost != 1 || done[0].Left != 0 || done[0].Port.ProgID != id {
		t.Fatalf("%+v, %v", done, err)
	}
	if err := knock(t, p, 4420); err == nil || os.IsTimeout(err) {
		t.Errorf("unloaded, also from under an open handle: %v, want a refusal", err)
	}
	if _, err := os.Stat(instance); !os.IsNotExist(err) {
		t.Errorf("the instance's directory: %v", err)
	}
	mustLoad(t, p, loader.Options{})
}

func TestPinnedLayoutOnDisk(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	l := s.Link()
	dir := fmt.Sprintf("%s/%d-%d", instance, l.Netns, l.PortIndex)
	for _, pin := range []string{instance + "/config", instance + "/flows4", instance + "/flows6", instance + "/lanes", dir + "/xsks", dir + "/stats", dir + "/link"} {
		if _, err := os.Stat(pin); err != nil {
			t.Error(err)
		}
	}
	m, err := ebpf.LoadPinnedMap(instance+"/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var have bpf.Config
	if err := m.Lookup(uint32(0), &have); err != nil || have != bpf.Layout() {
		t.Errorf("config: %+v, %v", have, err)
	}
}

func TestTwoInterfacesOfAnInstance(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance})
	netns.In(t, p, pair.B, func() error {
		s, err := loader.Load(loader.Options{Link: p.Ends[pair.B].Name, Pin: instance})
		if err == nil {
			s.Close()
		}
		return err
	})
	if err := unload(); err != nil {
		t.Fatal(err)
	}
	for _, side := range []pair.Side{pair.A, pair.B} {
		netns.In(t, p, side, func() error {
			s, err := loader.Load(loader.Options{Link: p.Ends[side].Name})
			if err == nil {
				s.Close()
			}
			return err
		})
	}
}

func TestLayoutMismatch(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	otherLayout(t)
	_, err := adopt(p)
	rig.Says(t, err, loader.ErrLayout, "version 77", fmt.Sprintf("version %d", bpf.Version), "stag unload --force --instance test")
	// Load another interface of the same instance.
	err = p.Do(pair.B, func() error {
		_, err := loader.Load(loader.Options{Link: p.Ends[pair.B].Name, Pin: instance})
		return err
	})
	rig.Says(t, err, loader.ErrLayout, "version 77", fmt.Sprintf("version %d", bpf.Version))
}

// otherLayout gives the instance another layout version.
func otherLayout(t *testing.T) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(instance+"/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	other := bpf.Layout()
	other.Version = 77
	if err := m.Put(uint32(0), other); err != nil {
		t.Fatal(err)
	}
}

// TestOneFlowMap is an instance of layout version 8, which had one map for the flows of
// both address families: it is refused by its version, and a forced unload removes it.
func TestOneFlowMap(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	config, err := ebpf.LoadPinnedMap(instance+"/"+bpf.MapConfig, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer config.Close()
	// key, flow, record, reasons, entry, reserved
	old := struct {
		Version uint32
		Sizes   [6]uint16
	}{8, [6]uint16{40, 40, 16, uint16(bpf.Reasons), 64, 0}}
	if err := config.Put(uint32(0), old); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{bpf.MapFlows4, bpf.MapFlows6} {
		if err := os.Remove(instance + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	flows, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 40, ValueSize: 40, MaxEntries: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer flows.Close()
	if err := flows.Pin(instance + "/flows"); err != nil {
		t.Fatal(err)
	}
	_, err = adopt(p)
	rig.Says(t, err, loader.ErrLayout, "version 8", fmt.Sprintf("version %d", bpf.Version), "stag unload --force --instance test")
	rig.Says(t, instanceIn(t, p, pair.A).Err, loader.ErrLayout, "version 8")
	_, err = load(p, loader.Options{Pin: instance})
	rig.Says(t, err, nil, "stag unload")
	if done, err := loader.Unload(loader.UnloadOptions{Instance: instance, Force: true}); err != nil || len(done) != 1 {
		t.Errorf("unloaded %+v, %v", done, err)
	}
	if _, err := os.Stat(instance); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the instance is still there: %v", err)
	}
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
}

func TestUnknownLayout(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	if err := os.MkdirAll(instance, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(instance, "config")); err != nil {
		t.Fatal(err)
	}
	_, err = load(p, loader.Options{Pin: instance})
	rig.Says(t, err, loader.ErrLayout, "version")
}

func TestLeftoversOfAnInterruptedLoad(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	l := lookup(t, p, pair.A)
	dir := fmt.Sprintf("%s/%d-%d", instance, l.Netns, l.PortIndex)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(dir + "/flows"); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, p, loader.Options{Pin: instance})
}

func TestPinElsewhere(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	dir := filepath.Join(t.TempDir(), "stag")
	_, err := load(p, loader.Options{Pin: dir})
	rig.Says(t, err, loader.ErrNoBPFFS, dir, "mount -t bpf")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a directory was made all the same: %v", err)
	}
	mustLoad(t, p, loader.Options{}) // no program has stayed attached
}

func TestNothingPinned(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	_, err := adopt(p)
	rig.Says(t, err, loader.ErrNotPinned, "stag load "+p.Ends[pair.A].Name)
	rig.Says(t, unload(), loader.ErrNotPinned, instance)
}

func TestUnloadWhileInUse(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	c := mustClaim(t, s.Link(), 0)
	rig.Says(t, unload(), loader.ErrQueueBusy, fmt.Sprintf("pid %d", os.Getpid()))
	_, err := load(p, loader.Options{})
	rig.Says(t, err, loader.ErrAlreadyLoaded, fmt.Sprintf("pid %d", os.Getpid()))
	c.Close()
	if err := unload(); err != nil {
		t.Error(err)
	}
}

func TestPinnedOutlivesItsLoader(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	o := startOther(t, p, pair.A, "load pinned")
	if o.said != "ready" {
		t.Fatal(o.said)
	}
	o.kill(t)
	s, err := adopt(p)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestAdoptAfterDetach(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	l := s.Link()
	if err := os.Remove(fmt.Sprintf("%s/%d-%d/link", instance, l.Netns, l.PortIndex)); err != nil {
		t.Fatal(err)
	}
	_, err := adopt(p)
	rig.Says(t, err, loader.ErrNotPinned, p.Ends[pair.A].Name)
}
