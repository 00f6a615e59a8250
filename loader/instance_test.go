package loader_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/tpt"
)

// instanceIn reads the tests' instance from side's namespace.
func instanceIn(t *testing.T, p *pair.Pair, side pair.Side) (found loader.Instance) {
	t.Helper()
	netns.In(t, p, side, func() error {
		all, err := loader.Instances()
		for _, i := range all {
			if i.Dir == instance {
				found = i
			}
		}
		if err == nil && found.Dir == "" {
			err = fmt.Errorf("%s is not among %d instances", instance, len(all))
		}
		return err
	})
	return found
}

// onePort checks that the instance can be read and has one interface.
func onePort(t *testing.T, i loader.Instance) loader.PinnedPort {
	t.Helper()
	if i.Err != nil || len(i.Ports) != 1 {
		t.Fatalf("an instance of %d interfaces: %v", len(i.Ports), i.Err)
	}
	if err := i.Ports[0].Err; err != nil {
		t.Fatal(err)
	}
	return i.Ports[0]
}

func TestInstances(t *testing.T) {
	p := netns.Pair(t, pair.Config{Queues: 2})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance, MaxFlows: 100})
	k := key(t, "192.0.2.2:40000", "192.0.2.1:4420")
	if err := s.Insert(k, bpf.Flow{ID: 1, Kind: bpf.KindRDMA, State: bpf.Live}); err != nil {
		t.Fatal(err)
	}
	knock(t, p, 4420)
	i := instanceIn(t, p, pair.A)
	got := onePort(t, i)
	l := s.Link()
	if i.Name != filepath.Base(instance) || i.Table != nil || got.Netns != l.Netns || got.Index != l.PortIndex ||
		!got.Found || got.Name != l.Port || got.Space != "" || got.Mode != loader.Native ||
		got.ProgID != s.ProgID() || got.MaxFlows != 100 || got.Queues != 2 || got.InUse || got.Stale != "" {
		t.Errorf("%+v", i)
	}
	if len(got.Flows) != 1 || got.Flows[0].Key != k || got.Flows[0].ID != 1 || !got.Flows[0].Alive || got.Live()[os.Getpid()] != 1 {
		t.Errorf("flows: %+v", got.Flows)
	}
	if got.Stats[bpf.NoSocket] == 0 {
		t.Errorf("counters: %v", got.Stats)
	}
	c := mustClaim(t, l, 1)
	if got := onePort(t, instanceIn(t, p, pair.A)); !got.InUse || got.Owner.PID != os.Getpid() {
		t.Errorf("in use %v, by %+v", got.InUse, got.Owner)
	}
	c.Close()
}

// TestInstanceOfDeadProcess checks that the flows of an ended process are not taken for
// flows of a process that got the same pid later.
func TestInstanceOfDeadProcess(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	o := startOther(t, p, pair.A, "stay")
	o.kill(t)
	for i, f := range []bpf.Flow{
		{ID: 1, PID: uint32(o.Process.Pid)},
		{ID: 2, PID: uint32(os.Getpid()), Created: 1}, // this process began after that time
		{ID: 3},
	} {
		if err := s.Insert(key(t, fmt.Sprintf("192.0.2.2:%d", 40000+i), "192.0.2.1:4420"), f); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range onePort(t, instanceIn(t, p, pair.A)).Flows {
		if f.Alive != (f.ID == 3) {
			t.Errorf("flow %d of pid %d: alive %v", f.ID, f.PID, f.Alive)
		}
	}
}

func TestInstanceMovedRenamedGone(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	id := s.ProgID()
	s.Close()
	rename(t, p, pair.A, "renamed0")
	if got := onePort(t, instanceIn(t, p, pair.A)); got.Name != "renamed0" || got.ProgID != id {
		t.Errorf("renamed: %+v", got)
	}
	// This thread is in another namespace, and the pair's namespaces have no process.
	if i, err := loader.ReadInstance(instance); err != nil || onePort(t, i).Found || onePort(t, i).Stale != "" {
		t.Errorf("from elsewhere: %+v, %v", i, err)
	}
	o := startOther(t, p, pair.A, "stay")
	if i, err := loader.ReadInstance(instance); err != nil || !onePort(t, i).Found || onePort(t, i).Space == "" {
		t.Errorf("with a process in the namespace: %+v, %v", i, err)
	}
	o.kill(t)
	netns.In(t, p, pair.A, func() error {
		l, err := netlink.LinkByName("renamed0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if got := onePort(t, instanceIn(t, p, pair.A)); got.Stale == "" || got.Found {
		t.Errorf("removed: %+v", got)
	}
}

// rename gives side's interface another name.
func rename(t *testing.T, p *pair.Pair, side pair.Side, name string) {
	t.Helper()
	netns.In(t, p, side, func() error {
		l, err := netlink.LinkByName(p.Ends[side].Name)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, name), netlink.LinkSetUp(l))
	})
}

func TestInstanceTable(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	unloadAfter(t)
	table, err := loader.NewTable(64, 512, instance)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	owned, err := tpt.New(tpt.Config{Memory: table.Memory()})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := owned.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	stag, err := owned.Register(tpt.Region{PD: pd, Memory: make([]byte, 10)})
	if err != nil {
		t.Fatal(err)
	}
	i, err := loader.ReadInstance(instance)
	if err != nil || i.Err != nil || i.Table == nil || i.Table.Entries != 64 || !i.Table.InUse || i.Table.Owner.PID != os.Getpid() {
		t.Fatalf("%+v, %v", i, err)
	}
	var seen []tpt.STag
	err = i.Table.Read(func(memory []byte) error {
		v, err := tpt.NewView(memory)
		if err != nil {
			return err
		}
		for n := range v.Len() {
			if info, ok := v.Entry(n); ok {
				seen = append(seen, info.STag)
			}
		}
		return nil
	})
	if err != nil || len(seen) != 1 || seen[0] != stag {
		t.Errorf("read %v, %v, want %v", seen, err, stag)
	}
}

func TestInstanceOfAnotherLayout(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	otherLayout(t)
	i := instanceIn(t, p, pair.A)
	rig.Says(t, i.Err, loader.ErrLayout, "version 77")
	if len(i.Ports) != 1 || !i.Ports[0].Found || i.Ports[0].Flows != nil {
		t.Errorf("%+v", i)
	}
}
