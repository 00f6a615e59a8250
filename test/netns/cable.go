package netns

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/rig"
)

// Cable is a second veth pair between the namespaces of a pair.
type Cable struct {
	Names [2]string // of the ends, by side
	Hosts [2]netip.Addr
}

// SecondCable makes a cable with addresses of its own (RFC 5737), and returns when both ends
// carry packets. It ends with the namespaces.
func SecondCable(t testing.TB, p *pair.Pair) Cable {
	t.Helper()
	c := Cable{Hosts: [2]netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")}}
	for side := range c.Names {
		c.Names[side] = p.Ends[side].Name[:len(p.Ends[side].Name)-2] + "x2"
	}
	var far *os.File
	In(t, p, pair.B, func() (err error) {
		far, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer far.Close()
	In(t, p, pair.A, func() error {
		veth := netlink.NewVeth(netlink.NewLinkAttrs())
		veth.Name, veth.PeerName, veth.PeerNamespace = c.Names[0], c.Names[1], netlink.NsFd(far.Fd())
		return netlink.LinkAdd(veth)
	})
	for side, name := range c.Names {
		In(t, p, pair.Side(side), func() error { return bringUp(name, netip.PrefixFrom(c.Hosts[side], 24)) })
	}
	for side, name := range c.Names {
		rig.Eventually(t, name+" is up", func() bool {
			var l netlink.Link
			In(t, p, pair.Side(side), func() (err error) {
				l, err = netlink.LinkByName(name)
				return err
			})
			return l.Attrs().OperState == netlink.OperUp
		})
	}
	return c
}

// bringUp configures an interface of the calling thread's namespace and sets it up.
func bringUp(name string, address netip.Prefix) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	host := &net.IPNet{IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), 32)}
	return errors.Join(loader.SetTxChecksum(name, false),
		netlink.AddrAdd(l, &netlink.Addr{IPNet: host}), netlink.LinkSetUp(l))
}
