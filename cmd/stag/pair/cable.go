package pair

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
)

// The addresses of the two sides come from the blocks for documentation (RFC 5737,
// RFC 3849). All pairs have the same addresses, because their namespaces are separate.
var addresses = [2]struct{ v4, v6 netip.Prefix }{
	{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")},
	{netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8::2/64")},
}

// usableWait is the longest wait for the links to come up. Links come up within
// milliseconds, unless the machine is very busy.
const usableWait = 5 * time.Second

// newEnd returns an end that has no link yet. The argument which must be different for each end of a pair.
func (p *Pair) newEnd(which byte, at struct{ v4, v6 netip.Prefix }) End {
	pid := os.Getpid()
	return End{
		Name: fmt.Sprintf("s%c%x%x", which, pid, p.id),
		MAC:  net.HardwareAddr{0x02, which, byte(pid), p.id[0], p.id[1], p.id[2]},
		V4:   at.v4,
		V6:   at.v6,
	}
}

// cable makes a veth pair. The kernel chooses the index of the near end if it is 0. The near end is in the caller's namespace, and the far end in the namespace that the
// function there returns.
func cable(near, far *End, there func() (*os.File, error), c Config) error {
	space, err := there()
	if err != nil {
		return err
	}
	defer space.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU, attrs.Index = near.Name, near.MAC, c.MTU, near.Index
	attrs.NumRxQueues, attrs.NumTxQueues = c.Queues, c.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = far.Name, far.MAC, uint32(c.MTU)
	veth.PeerNumRxQueues, veth.PeerNumTxQueues = uint32(c.Queues), uint32(c.Queues)
	veth.PeerNamespace = netlink.NsFd(space.Fd())
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add a veth link of %d queues and MTU %d: %w", c.Queues, c.MTU, err)
	}
	return nil
}

// configure brings an end up. The caller's thread must be in the end's namespace.
func configure(end *End, c Config) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(end.Name)
	if err != nil {
		return fmt.Errorf("look %s up: %w", end.Name, err)
	}
	end.Index = link.Attrs().Index
	if err := quiet(end.Name); err != nil {
		return err
	}
	if !c.ChecksumOffload {
		if err := loader.SetTxChecksum(end.Name, false); err != nil {
			return err
		}
	}
	if err := addAddresses(link, end); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", end.Name, err)
	}
	if !c.ThreadedNAPI {
		return nil
	}
	if err := loader.SetGRO(end.Name, true); err != nil {
		return err
	}
	return loader.SetThreadedNAPI(end.Name, true)
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look the loopback up: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set the loopback up: %w", err)
	}
	return nil
}

// addAddresses adds the IPv4 and the IPv6 address to link. It turns duplicate address
// detection off, because the IPv6 address would otherwise be unusable for a second.
func addAddresses(link netlink.Link, end *End) error {
	for _, a := range []netip.Prefix{end.V4, end.V6} {
		addr := &netlink.Addr{IPNet: &net.IPNet{
			IP:   a.Addr().AsSlice(),
			Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
		}}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add %v to %s: %w", a, end.Name, err)
		}
	}
	return nil
}

// awaitUsable returns when an end's link can carry packets to all of its addresses. The caller's thread must be in
// the end's namespace. The kernel applies IPv6 addresses from a work queue, a little later than it reports them.
func awaitUsable(end End) error {
	for deadline := time.Now().Add(usableWait); ; time.Sleep(time.Millisecond) {
		ok, err := usable(end.Index)
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not usable after %v", end.Name, usableWait)
		}
	}
}

// usable reports whether a link is running, and whether all three addresses of the link are routed to this host: the
// two from addAddresses, and the IPv6 link-local address.
func usable(index int) (bool, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return false, fmt.Errorf("look a link up: %w", err)
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	if link.Attrs().OperState != netlink.OperUp || len(addrs) < 3 {
		return false, nil
	}
	for _, a := range addrs {
		options := &netlink.RouteGetOptions{}
		if a.IP.IsLinkLocalUnicast() {
			options.OifIndex = index
		}
		routes, err := netlink.RouteGetWithOptions(a.IP, options)
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
			return false, nil
		}
	}
	return true, nil
}

// removeLink deletes both ends of the cable. It returns no error if the cable does not exist.
func removeLink(index int) error {
	link, err := netlink.LinkByIndex(index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", link.Attrs().Name, err)
	}
	return nil
}
