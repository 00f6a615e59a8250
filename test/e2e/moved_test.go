package e2e

import (
	"errors"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/stag-rdma/stag/offload/stream"
)

// TestInterfaceRenamed checks that a transfer continues when its interface is renamed, and that later transfers work,
// too.
func TestInterfaceRenamed(t *testing.T) {
	r := newRig(t, setup{})
	x := r.transfer(32 << 20)
	x.reach(1 << 20)
	r.in(ours, func() error {
		l, err := netlink.LinkByIndex(r.pair.Ends[ours].Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(l, "renamed0")
	})
	x.finish()
	r.transfer(1 << 20).finish()
}

// TestInterfaceMoved moves an interface into another namespace, which counts as removal. Every flow ends with ErrPort,
// closing works, and nothing of stag moves with the interface.
func TestInterfaceMoved(t *testing.T) {
	r := newRig(t, setup{})
	x := r.transfer(1 << 40)
	x.reach(1 << 20)
	elsewhere := r.anotherSpace()
	index := r.pair.Ends[ours].Index
	r.in(ours, func() error {
		l, err := netlink.LinkByIndex(index)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(elsewhere))
	})
	r.Wait(x.flow.Done(), "the flow's end")
	if !errors.Is(x.flow.Err(), stream.ErrPort) || !errors.Is(x.ulp.Err(), stream.ErrPort) {
		t.Errorf("flow: %v; upper layer: %v; want ErrPort", x.flow.Err(), x.ulp.Err())
	}
	r.Must(r.nic.Close())
	there, err := netlink.NewHandleAt(elsewhere)
	r.Must(err)
	defer there.Close()
	links, err := there.LinkList()
	r.Must(err)
	for _, l := range links {
		if a := l.Attrs(); a.Xdp != nil && a.Xdp.Attached {
			t.Errorf("%s still has a program", a.Name)
		}
	}
	if len(links) < 2 {
		t.Error("the interface did not arrive where it was moved")
	}
}

// anotherSpace makes a network namespace for this test only.
func (r *rig) anotherSpace() netns.NsHandle {
	r.Helper()
	made := make(chan error)
	var space netns.NsHandle
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		space, err = netns.New()
		made <- err
	}()
	r.Must(<-made)
	r.Cleanup(func() { space.Close() })
	return space
}
