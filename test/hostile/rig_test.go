package hostile

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rawpeer"
	common "github.com/stag-rdma/stag/test/rig"
)

// rig is an adapter on one of the two paths, with the place of its peers. Nothing of it may be left when the test ends.
type rig struct {
	common.Stage
	a        *rdma.Adapter
	l        *rdma.Listener
	host     string                   // the adapter's address
	peerHost string                   // address of raw peers
	there    func(func() error) error // runs a function at the place of raw peers
	here     func(func() error) error // runs a function at the place of the adapter
	gone     bool                     // the test has closed the adapter
}

// heap is the size of the adapters' region heap, in octets.
const heap = 8 << 20

// silence is how long a listener waits for a Request.
const silence = 500 * time.Millisecond

// onBothPaths runs f with an adapter on each of the paths.
func onBothPaths(t *testing.T, f func(r *rig)) {
	t.Helper()
	t.Run("kernel port", func(t *testing.T) { f(kernelRig(t)) })
	t.Run("offloaded", func(t *testing.T) { f(offloadedRig(t)) })
}

func kernelRig(t testing.TB) *rig {
	t.Helper()
	common.NoLeaks(t)
	stay := func(f func() error) error { return f() }
	r := &rig{Stage: common.On(t), host: "127.0.0.1", peerHost: "127.0.0.1", there: stay, here: stay}
	r.open(rdma.Config{KernelPort: true, RegionHeap: heap})
	return r
}

func offloadedRig(t testing.TB) *rig { return portRig(t, rdma.Config{}) }

// portRig does the same as offloadedRig with a Config. It fills in Ports and RegionHeap.
func portRig(t testing.TB, c rdma.Config) *rig {
	t.Helper()
	common.NoLeaks(t)
	p := netns.XDPPair(t, pair.Config{})
	r := &rig{
		Stage: common.On(t), host: p.Ends[pair.A].V4.Addr().String(), peerHost: p.Ends[pair.B].V4.Addr().String(),
		there: func(f func() error) error { return p.Do(pair.B, f) },
		here:  func(f func() error) error { return p.Do(pair.A, f) },
	}
	t.Cleanup(r.noSockets)
	c.Ports, c.RegionHeap = []string{p.Ends[pair.A].Name}, heap
	r.open(c)
	return r
}

// open opens the adapter and a listener, and closes them when the test ends.
func (r *rig) open(c rdma.Config) {
	r.Helper()
	r.Must(r.here(func() (err error) {
		r.a, err = rdma.Open(c)
		return err
	}))
	r.Cleanup(func() {
		if !r.gone {
			r.idle()
		}
		r.Check(r.a.Close())
	})
	var err error
	r.l, err = r.a.Listen(r.Ctx(), net.JoinHostPort(r.host, "0"), rdma.ListenConfig{Timeout: silence})
	r.Must(err)
}

// idle demands that the adapter has no objects left.
func (r *rig) idle() {
	r.Helper()
	at, err := r.a.Attributes()
	r.Must(err)
	if at.Regions != 0 || at.QPs != 0 || at.HeapFree != at.HeapSize {
		r.Errorf("left behind: %d regions, %d QPs, %d octets of the heap", at.Regions, at.QPs, at.HeapSize-at.HeapFree)
	}
}

// noSockets checks that the kernel has no socket of stag left.
func (r *rig) noSockets() {
	r.Helper()
	var left []string
	r.Must(r.here(func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			all, err := netlink.SocketDiagTCP(family)
			if err != nil {
				return err
			}
			for _, s := range all {
				const timeWait = 6
				if s.State != timeWait {
					left = append(left, fmt.Sprintf("%v:%d-%v:%d state %d", s.ID.Source, s.ID.SourcePort, s.ID.Destination, s.ID.DestinationPort, s.State))
				}
			}
		}
		return nil
	}))
	if len(left) != 0 {
		r.Errorf("sockets left behind: %v", left)
	}
}

// with returns the rig for a subtest.
func (r *rig) with(t *testing.T) *rig {
	c := *r
	c.TB = t
	return &c
}

// dial returns a raw peer that has connected to the listener.
func (r *rig) dial() *rawpeer.Peer {
	r.Helper()
	var c net.Conn
	r.Must(r.there(func() (err error) {
		c, err = net.DialTimeout("tcp", r.l.Addr().String(), 10*time.Second)
		return err
	}))
	return r.peer(c)
}

func (r *rig) peer(c net.Conn) *rawpeer.Peer {
	r.Helper()
	p, err := rawpeer.New(c.(*net.TCPConn))
	r.Must(err)
	r.Cleanup(func() { c.Close() })
	return p
}

// listen returns a listener for raw peers.
func (r *rig) listen() *net.TCPListener {
	r.Helper()
	var l net.Listener
	r.Must(r.there(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(r.peerHost, "0"))
		return err
	}))
	r.Cleanup(func() { l.Close() })
	r.Must(l.(*net.TCPListener).SetDeadline(time.Now().Add(rawpeer.Patience)))
	return l.(*net.TCPListener)
}
