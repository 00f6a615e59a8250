package loader_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// twoPorts is a host with two interfaces on one link. Side B is a bridge with an address
// of each family. The first interface has the addresses of side A.
type twoPorts struct {
	*pair.Pair
	t     *testing.T
	first loader.Link
	next  loader.Link
	peer4 netip.Addr
	peer6 netip.Addr
	m     *loader.Mover
}

func newTwoPorts(t *testing.T) *twoPorts {
	t.Helper()
	need.Tool(t, "ip")
	p := &twoPorts{Pair: netns.Pair(t, pair.Config{}), t: t}
	cable := netns.SecondCable(t, p.Pair)
	p.peer4, p.peer6 = p.Ends[pair.B].V4.Addr(), p.Ends[pair.B].V6.Addr()
	far := p.Ends[pair.B]
	p.ip(pair.B, "link add br0 type bridge")
	for _, name := range []string{far.Name, cable.Names[1]} {
		p.ip(pair.B, "addr flush dev "+name, "link set "+name+" master br0")
	}
	p.ip(pair.B, fmt.Sprintf("addr add %v dev br0", far.V4), fmt.Sprintf("addr add %v dev br0 nodad", far.V6), "link set br0 up")
	p.ip(pair.A, "addr flush dev "+cable.Names[0]+" scope global")
	netns.In(t, p, pair.A, func() (err error) {
		p.m, err = loader.NewMover()
		return err
	})
	t.Cleanup(func() { rig.Check(t, p.m.Close()) })
	p.first, p.next = p.link(p.Ends[pair.A].Name), p.link(cable.Names[0])
	return p
}

func (p *twoPorts) link(name string) (l loader.Link) {
	p.t.Helper()
	netns.In(p.t, p, pair.A, func() (err error) { l, err = loader.LookupLink(name); return err })
	return l
}

// ip runs commands of ip on a side, and returns their output.
func (p *twoPorts) ip(side pair.Side, commands ...string) (out string) {
	p.t.Helper()
	for _, c := range commands {
		netns.In(p.t, p, side, func() error {
			b, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", c, err, b)
			}
			out += string(b)
			return nil
		})
	}
	return out
}

// configure gives the first interface all kinds of addresses and routes.
func (p *twoPorts) configure() {
	p.t.Helper()
	dev, gw, gw6 := p.first.Name, p.peer4.String(), p.peer6.String()
	p.ip(pair.A,
		"addr add 192.0.2.71/24 brd 192.0.2.255 dev "+dev+" label "+dev+":v", // a secondary address
		"addr add 198.51.100.9/32 dev "+dev+" scope link",
		"addr add 203.0.113.1/24 dev "+dev+" noprefixroute valid_lft 4000 preferred_lft 3000",
		"addr add 203.0.113.129 peer 203.0.113.130 dev "+dev+" metric 77",
		"addr add 2001:db8:7::1/64 dev "+dev+" nodad noprefixroute",
		"addr add 2001:db8:8::1/64 dev "+dev+" nodad valid_lft 4000 preferred_lft 0",
		"addr add 169.254.7.7/16 dev "+dev,
		"route add 203.0.113.0/25 dev "+dev+" proto kernel scope link src 203.0.113.1 metric 100",
		"route add default via "+gw+" dev "+dev+" metric 42 mtu 1400 advmss 1300",
		"route add 10.1.0.0/16 via "+gw+" dev "+dev+" table 99 src 192.0.2.71 proto static",
		"route add 10.5.0.0/16 via 203.0.113.2 dev "+dev, // the kernel lists it before the route to its gateway
		"route add 10.2.0.0/16 via 172.16.0.1 dev "+dev+" onlink",
		"-6 route add 2001:db8:7::/64 dev "+dev+" metric 512 pref high",
		"-6 route add default via "+gw6+" dev "+dev+" metric 43",
		"-6 route add 2001:db8:9::/48 via 2001:db8:7::2 dev "+dev+" expires 5000",
	)
	p.usable(dev)
}

// usable waits until an interface receives packets for the IPv6 addresses of configure.
// The kernel adds their local routes from a work queue.
func (p *twoPorts) usable(dev string) {
	p.t.Helper()
	rig.Eventually(p.t, "the addresses are usable", func() bool {
		return strings.Count(p.ip(pair.A, "-6 route show table local type local dev "+dev), "2001:db8:") == 3
	})
}

// state describes the addresses of an interface and the routes through it, without the
// name of the interface and without what changes by itself.
func (p *twoPorts) state(dev string) []string {
	p.t.Helper()
	all := p.ip(pair.A, "-o addr show dev "+dev, "-4 route show table all dev "+dev, "-6 route show table all dev "+dev)
	var lines []string
	for line := range strings.Lines(all) {
		if strings.Contains(line, "fe80:") || strings.Contains(line, "ff00:") || strings.Contains(line, "169.254.") {
			continue
		}
		var words []string
		for i, w := range strings.Fields(line) {
			switch {
			case i == 0 && strings.HasSuffix(w, ":"), w == "nodad", w == "linkdown", w == "dead":
			case strings.HasSuffix(w, "sec") && w != "0sec":
				words = append(words, "Nsec")
			default:
				words = append(words, strings.ReplaceAll(w, dev, "DEV"))
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

// hears reports the Ethernet address that the peer has for an address of side A.
func (p *twoPorts) hears(addr netip.Addr) (mac string) {
	p.t.Helper()
	netns.In(p.t, p, pair.B, func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		table, err := netlink.NeighList(br.Attrs().Index, 0)
		for _, e := range table {
			if at, _ := netip.AddrFromSlice(e.IP); at.Unmap() == addr {
				mac = e.HardwareAddr.String()
			}
		}
		return err
	})
	return mac
}

// greet makes the peer learn where the addresses of side A are.
func (p *twoPorts) greet(addrs ...netip.Addr) {
	p.t.Helper()
	for _, a := range addrs {
		netns.In(p.t, p, pair.B, func() error {
			c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("x"))
			return err
		})
		rig.Eventually(p.t, "the peer resolves "+a.String(), func() bool { return p.hears(a) != "" })
	}
}
