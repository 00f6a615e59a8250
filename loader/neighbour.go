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
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// usable are the states of a neighbour in which the kernel itself would send to the
// neighbour's address. The kernel checks a stale neighbour when it uses the neighbour.
const usable = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE |
	netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE

// Neighbour is the entry for one address of a link in the kernel's neighbour table. The
// zero Neighbour means that there is no entry.
type Neighbour struct {
	MAC     net.HardwareAddr // nil if not known or not usable
	Fixed   bool             // permanent: set by hand, and never expires
	Managed bool             // the kernel refreshes the entry (NTF_EXT_MANAGED)
}

// Neighbour looks ip up in the kernel's neighbour table of the interface. It sends
// nothing.
func (n *Net) Neighbour(ip netip.Addr, ifindex int) (Neighbour, error) {
	ip = ip.Unmap().WithZone("")
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: n.direct}
	req.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(ifindex)})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, ip.AsSlice()))
	answer, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return Neighbour{}, nil
	case err != nil:
		return Neighbour{}, fmt.Errorf("look %v up in the neighbour table: %w", ip, err)
	case len(answer) == 0:
		return Neighbour{}, nil
	}
	e, err := netlink.NeighDeserialize(answer[0])
	if err != nil {
		return Neighbour{}, fmt.Errorf("read the neighbour entry of %v: %w", ip, err)
	}
	found := Neighbour{
		Fixed:   e.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0,
		Managed: e.FlagsExt&netlink.NTF_EXT_MANAGED != 0,
	}
	if e.State&usable != 0 && len(e.HardwareAddr) == 6 {
		found.MAC = bytes.Clone(e.HardwareAddr)
	}
	return found, nil
}

// neighbour returns ip's Ethernet address on the interface. If the address is not
// known, neighbour asks for it and waits.
func (n *Net) neighbour(ctx context.Context, ip netip.Addr, ifindex int) (net.HardwareAddr, error) {
	ctx, cancel := context.WithTimeout(ctx, ResolveWait)
	defer cancel()
	asked := false
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		e, err := n.Neighbour(ip, ifindex)
		if e.MAC != nil || err != nil {
			return e.MAC, err
		}
		if !asked {
			if err := n.setNeighbour(ip, ifindex, netlink.NTF_USE, 0); err != nil {
				return nil, fmt.Errorf("ask for the Ethernet address of %v: %w", ip, err)
			}
			asked = true
		}
		select {
		case <-ctx.Done():
			return nil, n.NoNeighbour(ip, ifindex, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// NoNeighbour returns ErrNoNeighbour for a next hop that does not answer.
func (n *Net) NoNeighbour(ip netip.Addr, ifindex int, cause error) error {
	return fail(ErrNoNeighbour, cause, "%v does not answer on %s: check cable, VLAN and address", ip.WithZone(""), n.linkName(ifindex))
}

// linkName returns the interface's name, or its number if the interface is gone.
func (n *Net) linkName(index int) string {
	if link, err := n.nl.LinkByIndex(index); err == nil {
		return link.Attrs().Name
	}
	return fmt.Sprint("interface ", index)
}

func (n *Net) setNeighbour(ip netip.Addr, ifindex, flags, extended int) error {
	return n.nl.NeighSet(&netlink.Neigh{
		LinkIndex: ifindex, IP: ip.AsSlice(), Flags: flags, FlagsExt: extended,
	})
}

// KeepNeighbour makes the kernel resolve the Ethernet address of ip on the interface,
// and ask again before the entry expires. If managed is true, the kernel keeps asking
// until ReleaseNeighbour. If managed is false (before Linux 5.16), the kernel asked
// once, and the caller must call KeepNeighbour again about every 15 s.
//
// The caller must first check with Neighbour that the entry is not permanent. A
// permanent entry needs no refreshing and must not be changed.
func (n *Net) KeepNeighbour(ip netip.Addr, ifindex int) (managed bool, err error) {
	ip = ip.Unmap()
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

// ReleaseNeighbour ends the effect of KeepNeighbour, so the entry may expire again. A
// deleted entry stays deleted. An entry that has become permanent stays permanent.
func (n *Net) ReleaseNeighbour(ip netip.Addr, ifindex int) error {
	ip = ip.Unmap()
	if e, err := n.Neighbour(ip, ifindex); err != nil || e.Fixed || !e.Managed {
		return err
	}
	// If a request uses the entry (NTF_USE) and does not set the managed flag, the
	// kernel clears that flag.
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
