package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// usable is the states in which the kernel itself would send to a neighbour's
// address. A stale one is checked by the kernel when it is used.
const usable = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE |
	netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE

// neighbour is ip's Ethernet address on the interface, asked for when it is not
// known.
func (n *Net) neighbour(ctx context.Context, ip netip.Addr, ifindex int) (net.HardwareAddr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	asked := false
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		mac, err := n.known(ip, ifindex)
		if mac != nil || err != nil {
			return mac, err
		}
		if !asked {
			if err := n.setNeighbour(ip, ifindex, netlink.NTF_USE, 0); err != nil {
				return nil, fmt.Errorf("ask for the Ethernet address of %v: %w", ip, err)
			}
			asked = true
		}
		select {
		case <-ctx.Done():
			return nil, fail(ErrNoNeighbour, ctx.Err(), "%v does not answer on %s: check cable, VLAN and address", ip.WithZone(""), n.linkName(ifindex))
		case <-time.After(pause):
		}
	}
}

// linkName is the interface's name, or its number where it is gone.
func (n *Net) linkName(index int) string {
	if link, err := n.nl.LinkByIndex(index); err == nil {
		return link.Attrs().Name
	}
	return fmt.Sprint("interface ", index)
}

// known is what the neighbour table has, nil for nothing that can be used.
func (n *Net) known(ip netip.Addr, ifindex int) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	table, err := n.nl.NeighList(ifindex, family)
	if err != nil {
		return nil, fmt.Errorf("read the neighbour table: %w", err)
	}
	for _, e := range table {
		at, _ := netip.AddrFromSlice(e.IP)
		if at.Unmap() == ip.WithZone("") && e.State&usable != 0 && len(e.HardwareAddr) == 6 {
			return bytes.Clone(e.HardwareAddr), nil
		}
	}
	return nil, nil
}

func (n *Net) setNeighbour(ip netip.Addr, ifindex, flags, extended int) error {
	return n.nl.NeighSet(&netlink.Neigh{
		LinkIndex: ifindex, IP: ip.AsSlice(), Flags: flags, FlagsExt: extended,
	})
}

// KeepNeighbour makes the kernel keep the Ethernet address of ip on the
// interface fresh, by asking before it expires. managed says that it does so by
// itself until ReleaseNeighbour; without (before Linux 5.16) this was one
// refresh, and the caller repeats it now and then, every 15 s or so.
//
// Entries that are fixed by hand need no refreshing and are left as they are.
func (n *Net) KeepNeighbour(ip netip.Addr, ifindex int) (managed bool, err error) {
	ip = ip.Unmap()
	if fixed, err := n.fixed(ip, ifindex); fixed || err != nil {
		return fixed, err
	}
	err = n.setNeighbour(ip, ifindex, 0, netlink.NTF_EXT_MANAGED)
	if err == nil {
		return true, nil
	}
	// A kernel without managed entries refuses the attribute.
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return false, keepFailed(ip, err)
	}
	if err := n.setNeighbour(ip, ifindex, netlink.NTF_USE, 0); err != nil {
		return false, keepFailed(ip, err)
	}
	return false, nil
}

// ReleaseNeighbour ends what KeepNeighbour began: the entry may expire again.
func (n *Net) ReleaseNeighbour(ip netip.Addr, ifindex int) error {
	ip = ip.Unmap()
	if fixed, err := n.fixed(ip, ifindex); fixed || err != nil {
		return err
	}
	// Using an entry without the flag is what takes the flag away.
	if err := n.setNeighbour(ip, ifindex, netlink.NTF_USE, 0); err != nil {
		return fmt.Errorf("let the neighbour entry of %v go: %w", ip, err)
	}
	return nil
}

func keepFailed(ip netip.Addr, err error) error {
	if errors.Is(err, unix.EPERM) {
		return missing([]capability{capNetAdmin}, fmt.Sprintf("keep the neighbour entry of %v fresh", ip), err)
	}
	return fmt.Errorf("keep the neighbour entry of %v fresh: %w", ip, err)
}

// fixed reports whether ip has an entry that somebody set by hand.
func (n *Net) fixed(ip netip.Addr, ifindex int) (bool, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	table, err := n.nl.NeighList(ifindex, family)
	if err != nil {
		return false, fmt.Errorf("read the neighbour table: %w", err)
	}
	for _, e := range table {
		at, _ := netip.AddrFromSlice(e.IP)
		if at.Unmap() == ip.WithZone("") {
			return e.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0, nil
		}
	}
	return false, nil
}
