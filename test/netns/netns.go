// Package netns makes what tests need from the kernel: two network namespaces with a
// veth pair between them. It also sets the state of the interfaces. Everything is
// removed when the test ends. A test that lacks the rights is skipped, as package need
// says.
package netns

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// Pair makes two namespaces with a veth pair between them. It needs root.
func Pair(t testing.TB, c pair.Config) *pair.Pair {
	t.Helper()
	need.Root(t)
	need.Netns(t)
	p, err := pair.New(c)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, p.Close()) })
	return p
}

// XDPPair does the same as Pair, for a test that also needs AF_XDP sockets and XDP
// programs.
func XDPPair(t testing.TB, c pair.Config) *pair.Pair {
	t.Helper()
	need.Root(t)
	need.XDP(t)
	return Pair(t, c)
}

// Host runs functions in the network namespace of a side.
type Host interface {
	Do(side pair.Side, f func() error) error
}

// In runs f in the namespace of a side of h and ends the test if f fails.
func In(t testing.TB, h Host, side pair.Side, f func() error) {
	t.Helper()
	rig.Must(t, h.Do(side, f))
}

// SetLink sets an interface of the calling thread's namespace up or down.
func SetLink(name string, up bool) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(l)
	}
	return netlink.LinkSetDown(l)
}

// Sysctl writes a setting of the calling thread's namespace. name is a path below
// /proc/sys/net.
func Sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0)
}
