package daemon

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// DeviceName is the name of the device that clients see.
const DeviceName = "stag0"

// device is OpDevice.
func (c *client) device(m *proto.Message) (reply, error) {
	at, err := c.daemon.adapter.Attributes()
	if err != nil {
		return reply{}, err
	}
	l, q := at.Limits, c.daemon.cfg.Quota
	d := m.Device()
	*d = proto.Device{
		GUID: guidOf(at.Ports), Features: features, MaxMRSize: min(uint64(q.Mapped), l.MaxMessageSize), PageSizeCap: ^uint64(4095),
		VendorID: vendorID, VendorPart: 1, Ports: uint32(len(at.Ports)),
		MaxPD: uint32(q.PDs), MaxQP: uint32(q.QPs), MaxQPWR: uint32(l.MaxQPDepth), MaxSGE: uint32(l.MaxSGE), MaxSGERd: uint32(l.MaxReadSGE),
		MaxInline: uint32(mostInline), MaxCQ: uint32(q.CQs), MaxCQE: uint32(min(l.MaxCQDepth, q.CQSlots)), MaxMR: uint32(min(q.Regions, l.MaxRegions)), MaxMW: uint32(min(q.Windows, l.MaxRegions)),
		MaxSRQ: uint32(q.SRQs), MaxSRQWR: uint32(l.MaxSRQDepth), MaxSRQSGE: uint32(l.MaxSGE),
		MaxRdAtomic: uint32(l.MaxReadDepth), MaxPrivate: uint32(mostPrivate(l)),
	}
	copy(d.Name[:len(d.Name)-1], DeviceName)
	copy(d.Firmware[:len(d.Firmware)-1], c.daemon.cfg.Version)
	return reply{}, nil
}

// vendorID is from the range that no vendor of network cards has.
const vendorID = 0x737461 // "sta"

// mostPrivate is how much private data a client can pass. The trailer for extensions takes
// some of the room.
func mostPrivate(l rdma.Limits) int { return l.MaxPrivateData - trailerLen }

const trailerLen = 8

// guidOf makes a GUID of the first port's MAC address, as an EUI-64.
func guidOf(ports []rdma.Port) (guid [8]byte) {
	guid = [8]byte{0x02, 's', 't', 'a', 'g', 0, 0, 1} // locally administered
	for _, p := range ports {
		if i, err := net.InterfaceByName(p.Name); err == nil && len(i.HardwareAddr) == 6 {
			a := i.HardwareAddr
			return [8]byte{a[0] ^ 2, a[1], a[2], 0xff, 0xfe, a[3], a[4], a[5]}
		}
	}
	return guid
}

// ports returns the adapter's ports with their present addresses. Port number n is at n-1.
func (d *Daemon) ports() []rdma.Port {
	at, err := d.adapter.Attributes()
	if err != nil {
		d.log.Warn("the ports' addresses cannot be read", "err", err)
	}
	for i, p := range at.Ports {
		if p.Name == "" {
			at.Ports[i].Addresses = hostAddresses()
		}
	}
	return at.Ports
}

// hostAddresses are the addresses of the kernel port: those of the host, loopback last.
func hostAddresses() (list []netip.Prefix) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var loopback []netip.Prefix
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil:
		case p.Addr().IsLoopback():
			loopback = append(loopback, p)
		default:
			list = append(list, p)
		}
	}
	return append(list, loopback...)
}

func (d *Daemon) portNumbered(n uint32) (rdma.Port, error) {
	ports := d.ports()
	if n < 1 || int(n) > len(ports) {
		return rdma.Port{}, fmt.Errorf("port %d of %d: %w", n, len(ports), unix.EINVAL)
	}
	return ports[n-1], nil
}

// States of a port, as in libibverbs.
const (
	portDown   = 1
	portActive = 4
)

// kernelMTU is the MTU of the kernel port.
const kernelMTU = 65535

// port is OpPort.
func (c *client) port(m *proto.Message) (reply, error) {
	n := m.Port().PortNum
	p, err := c.daemon.portNumbered(n)
	if err != nil {
		return reply{}, err
	}
	out := proto.Port{PortNum: n, State: portActive, MTU: kernelMTU, GIDs: uint32(len(p.Addresses))}
	if p.Name != "" {
		describe(&out, p)
	}
	*m.Port() = out
	return reply{}, nil
}

// describe adds what the kernel says about the interface of a port.
func describe(out *proto.Port, p rdma.Port) {
	out.MTU, out.State = uint32(p.MTU), portDown
	copy(out.Netdev[:len(out.Netdev)-1], p.Name)
	i, err := net.InterfaceByName(p.Name)
	if err != nil {
		return
	}
	if i.Flags&net.FlagRunning != 0 {
		out.State = portActive
	}
	out.Ifindex = uint32(i.Index)
	copy(out.MAC[:], i.HardwareAddr)
	if text, err := os.ReadFile("/sys/class/net/" + p.Name + "/speed"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32); err == nil && n > 0 {
			out.Speed = uint32(n)
		}
	}
}

// gid is OpGID.
func (c *client) gid(m *proto.Message) (reply, error) {
	g := m.GID()
	p, err := c.daemon.portNumbered(g.PortNum)
	if err != nil {
		return reply{}, err
	}
	if int(g.Index) >= len(p.Addresses) {
		return reply{}, unix.ENODATA
	}
	g.GID = p.Addresses[g.Index].Addr().As16()
	if i, err := net.InterfaceByName(p.Name); err == nil {
		g.Ifindex = uint32(i.Index)
	}
	return reply{}, nil
}

// portOf returns the number of the port that has an address, or 0. The kernel port has every
// address of the host.
func (d *Daemon) portOf(a netip.Addr) uint32 {
	a = a.Unmap().WithZone("")
	for i, p := range d.ports() {
		for _, own := range p.Addresses {
			if own.Addr().WithZone("") == a {
				return uint32(i + 1)
			}
		}
	}
	return 0
}

// sockaddr returns an address as a struct sockaddr_in or sockaddr_in6.
func sockaddr(a netip.AddrPort) (b [proto.AddrLen]byte) {
	if !a.Addr().IsValid() {
		return b
	}
	ne, be := binary.NativeEndian, binary.BigEndian
	be.PutUint16(b[2:], a.Port())
	ip := a.Addr().Unmap()
	if ip.Is4() {
		ne.PutUint16(b[:], unix.AF_INET)
		octets := ip.As4()
		copy(b[4:], octets[:])
		return b
	}
	ne.PutUint16(b[:], unix.AF_INET6)
	octets := ip.As16()
	copy(b[8:], octets[:])
	ne.PutUint32(b[24:], scopeOf(ip.Zone()))
	return b
}

func scopeOf(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}

// addrPort reverses sockaddr. Family 0 is the zero AddrPort.
func addrPort(b [proto.AddrLen]byte) (netip.AddrPort, error) {
	ne, be := binary.NativeEndian, binary.BigEndian
	port := be.Uint16(b[2:])
	switch ne.Uint16(b[:]) {
	case 0:
		return netip.AddrPort{}, nil
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), nil
	case unix.AF_INET6:
		ip := netip.AddrFrom16([16]byte(b[8:24])).Unmap()
		if scope := ne.Uint32(b[24:]); scope != 0 && ip.Is6() {
			ip = ip.WithZone(zoneOf(scope))
		}
		return netip.AddrPortFrom(ip, port), nil
	}
	return netip.AddrPort{}, fmt.Errorf("address family %d: %w", ne.Uint16(b[:]), unix.EAFNOSUPPORT)
}

func zoneOf(scope uint32) string {
	if i, err := net.InterfaceByIndex(int(scope)); err == nil {
		return i.Name
	}
	return strconv.FormatUint(uint64(scope), 10)
}
