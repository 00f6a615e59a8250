package loader

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/wire"
)

// Announce tells all hosts of a link that addr is at the interface's Ethernet address:
// by gratuitous ARP (RFC 5227 §3) or by an unsolicited Neighbour Advertisement
// (RFC 4861 §7.2.6). It works in the network namespace of the calling OS thread, and
// needs CAP_NET_RAW.
func Announce(link Link, addr netip.Addr) error {
	m, err := NewMover()
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Announce(link, addr)
}

// Announce does what the function Announce does, in the network namespace of the Mover.
func (m *Mover) Announce(link Link, addr netip.Addr) error {
	mac, err := macOf(link)
	if err != nil {
		return err
	}
	addr = addr.Unmap().WithZone("")
	for _, frame := range m.announcements(link.Index, mac, addr) {
		if err := m.packets.send(link.Index, frame); err != nil {
			return fmt.Errorf("announce %v on %s: %w", addr, link.Name, err)
		}
	}
	return nil
}

func macOf(link Link) (wire.MAC, error) {
	if len(link.MAC) != 6 {
		return wire.MAC{}, fail(ErrNoLink, nil, "%s has no Ethernet address: use an Ethernet interface", link.Name)
	}
	return wire.MAC(link.MAC), nil
}

// announcements returns the frames that announce addr. Some hosts learn from requests
// only, and some from replies only, so that an IPv4 address is announced by both.
func (m *Mover) announcements(index int, mac wire.MAC, addr netip.Addr) [][]byte {
	if addr.Is6() {
		ip := addr.As16()
		a := wire.NeighbourFields{Src: ip, Dst: wire.AllNodes, Advertise: true, Router: m.net.forwards6(index), Override: true, Target: ip, MAC: mac}
		return [][]byte{a.Append(ethernet(wire.MulticastMAC(wire.AllNodes), mac, wire.TypeIPv6))}
	}
	ip := addr.As4()
	request := wire.ARPFields{Op: wire.ARPRequest, SenderMAC: mac, SenderIP: ip, TargetIP: ip}
	reply := wire.ARPFields{Op: wire.ARPReply, SenderMAC: mac, SenderIP: ip, TargetMAC: mac, TargetIP: ip}
	return [][]byte{
		request.Append(ethernet(wire.Broadcast, mac, wire.TypeARP)),
		reply.Append(ethernet(wire.Broadcast, mac, wire.TypeARP)),
	}
}

// Attributes of RTM_GETNETCONF (linux/netconf.h).
const (
	netconfIndex      = 1
	netconfForwarding = 2
)

// forwards6 reports whether the interface forwards IPv6. Hosts that hear of a router in
// an Advertisement without the router flag stop using it as their router.
func (n *Net) forwards6(index int) bool {
	req := n.request(unix.RTM_GETNETCONF, 0)
	req.AddRawData(appendAttr(message{unix.AF_INET6, 0, 0, 0}, netconfIndex, nl.Uint32Attr(uint32(index))))
	answer, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNETCONF)
	if err != nil || len(answer) == 0 || len(answer[0]) < 4 {
		return false
	}
	attrs, err := nl.ParseRouteAttr(answer[0][4:])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == netconfForwarding && len(a.Value) == 4 {
			return nl.NativeEndian().Uint32(a.Value) != 0
		}
	}
	return false
}

// request returns a netlink request that uses the Net's own socket.
func (n *Net) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: n.direct}
	return req
}

// announceAll announces those of the addresses that the interface still has, and that
// are not on their way elsewhere.
func (m *Mover) announceAll(link Link, addrs []netip.Addr) error {
	has, err := m.net.holdings(link.Index)
	if err != nil {
		return err
	}
	var errs []error
	for _, addr := range addrs {
		if has.find(addr) != nil {
			errs = append(errs, m.Announce(link, addr))
		}
	}
	return errors.Join(errs...)
}
