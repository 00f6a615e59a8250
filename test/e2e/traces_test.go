package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// traces are the objects outside the engines that a take-over could leave on the local side.
type traces struct {
	entries     int // entries of the steering program
	flows       int // flows of the interface
	descriptors int // descriptors of this process
	pins        int // pins of the interface in the BPF file system
}

func (r *rig) traces() (now traces) {
	r.Helper()
	now = traces{entries: r.entries(), flows: len(r.nic.Flows())}
	all, err := os.ReadDir("/proc/self/fd")
	r.Must(err)
	now.descriptors = len(all)
	link := r.nic.Link()
	now.pins = r.pins(fmt.Sprintf("%d-%d", link.Netns, link.PortIndex))
	return now
}

// pins returns how many directories of pins an interface has, of any instance.
func (r *rig) pins(port string) int {
	r.Helper()
	found, err := filepath.Glob(filepath.Join("/sys/fs/bpf/stag/*", port))
	r.Must(err)
	return len(found)
}

// unchanged waits until the traces are as before.
func (r *rig) unchanged(before traces) {
	r.Helper()
	var now traces
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if now = r.traces(); now == before {
			return
		}
	}
	r.Fatalf("left behind: %+v, and before the take-over %+v", now, before)
}

// tuple is a connection as the local side sees it.
type tuple struct{ local, remote *net.TCPAddr }

func tupleOf(c *net.TCPConn) tuple {
	return tuple{c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)}
}

// sockets returns how many sockets of the local side's kernel have the tuple, in any state.
func (r *rig) sockets(t tuple) (n int) {
	r.Helper()
	family := uint8(unix.AF_INET6)
	if t.local.IP.To4() != nil {
		family = unix.AF_INET
	}
	var all []*netlink.Socket
	r.in(ours, func() (err error) {
		all, err = netlink.SocketDiagTCP(family)
		return err
	})
	for _, s := range all {
		if int(s.ID.SourcePort) == t.local.Port && int(s.ID.DestinationPort) == t.remote.Port && s.ID.Source.Equal(t.local.IP) {
			n++
		}
	}
	return n
}

// link returns the present state of a side's interface in the kernel.
func (r *rig) link(side pair.Side) (l netlink.Link) {
	r.Helper()
	r.in(side, func() (err error) {
		l, err = netlink.LinkByName(r.pair.Ends[side].Name)
		return err
	})
	return l
}
