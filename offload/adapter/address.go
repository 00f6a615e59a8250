package adapter

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ends returns the two addresses of a connection. If an address is IPv4-mapped, Ends
// returns the IPv4 address.
func (a *Adapter) Ends(c *net.TCPConn) (local, remote netip.AddrPort) {
	return a.plain(c, c.LocalAddr(), unix.Getsockname), a.plain(c, c.RemoteAddr(), unix.Getpeername)
}

// plain returns an address of the socket c in the adapter's namespace. An IPv4-mapped
// address becomes an IPv4 address. The zone of a link-local address is the name of its
// interface. Package net remembers interfaces without their namespaces, so that the
// zone in addr may be wrong. plain therefore gets the zone from the kernel with ask.
func (a *Adapter) plain(c syscall.Conn, addr net.Addr, ask func(fd int) (unix.Sockaddr, error)) netip.AddrPort {
	ap := addr.(*net.TCPAddr).AddrPort()
	ip := ap.Addr().Unmap()
	if ip.Zone() != "" {
		ip = ip.WithZone(a.zoneOf(c, ask))
	}
	return netip.AddrPortFrom(ip, ap.Port())
}

// zoneOf returns the zone of one of c's addresses: the name of the interface, or its
// number if the interface is gone.
func (a *Adapter) zoneOf(c syscall.Conn, ask func(fd int) (unix.Sockaddr, error)) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	var index int
	raw.Control(func(fd uintptr) {
		if sa, err := ask(int(fd)); err == nil {
			if six, ok := sa.(*unix.SockaddrInet6); ok {
				index = int(six.ZoneId)
			}
		}
	})
	if index == 0 {
		return ""
	}
	return a.linkName(index, strconv.Itoa(index))
}

// numbered returns host with its zone as a number. A number is right even if package
// net remembers interfaces of another namespace. numbered must run in the adapter's
// namespace.
func numbered(host netip.Addr) (netip.Addr, error) {
	switch {
	case host.Zone() == "" && host.Is6() && host.IsLinkLocalUnicast():
		return host, fmt.Errorf("%v may be on any link: say which, as in %v%%eth1", host, host)
	case host.Zone() == "":
		return host, nil
	}
	if ifc, err := net.InterfaceByName(host.Zone()); err == nil {
		return host.WithZone(strconv.Itoa(ifc.Index)), nil
	}
	if _, err := strconv.Atoi(host.Zone()); err == nil {
		return host, nil
	}
	return host, fmt.Errorf("%v: there is no interface %s in the adapter's network namespace", host, host.Zone())
}
