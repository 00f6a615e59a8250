package loader

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
)

// Link describes a network interface at the time of the look-up.
type Link struct {
	// Name and Index are those of the interface itself. Routes and neighbours refer to
	// Index. For a member of a bond, Index is that of the bond.
	Name  string
	Index int

	Bond   string // name of the bond that the interface is a member of, or ""
	Active bool   // the bond sends through the member

	// Port and PortIndex name the port: the interface with the XDP hook and the queues.
	// The port is the interface itself or, for a VLAN interface, its parent. The fields
	// up to TxQueues describe the port.
	Port      string
	PortIndex int
	PortMTU   int    // octets
	Driver    string // "" if the driver does not report a name
	RxQueues  int
	TxQueues  int

	VLAN    uint16           // 0 unless the interface is a VLAN interface
	MAC     net.HardwareAddr // for a member of a bond, that of the bond, as MTU
	MTU     int              // largest IP packet of the interface, in octets
	Up      bool             // the interface is administratively up
	Running bool             // the interface has a carrier
	Netns   uint64
}

// LookupLink looks an interface up in the network namespace of the calling OS thread,
// as Net.LookupLink does.
func LookupLink(name string) (Link, error) {
	n, err := Open()
	if err != nil {
		return Link{}, err
	}
	defer n.Close()
	return n.LookupLink(name)
}

// LookupLink looks an interface up by its name. For a VLAN interface, the Link names
// the parent's port and the VLAN id. For a member of a bond, the Link has the bond's
// index and addresses. For a bond itself, which has no queues of its own, the error is
// ErrBond and names the bond's members: see Ports. The error is ErrNoLink if no interface
// has the name.
func (n *Net) LookupLink(name string) (Link, error) {
	l, err := n.nl.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return Link{}, n.noLink(name, err)
	}
	if err != nil {
		return Link{}, fmt.Errorf("look interface %s up: %w", name, err)
	}
	return n.describe(l)
}

// LinkAt looks an interface up by its index, which stays the same when the interface is
// renamed. The error is ErrNoLink if the interface is gone or in another namespace.
func (n *Net) LinkAt(index int) (Link, error) {
	l, err := n.nl.LinkByIndex(index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return Link{}, fail(ErrNoLink, err, "interface %d is gone from this network namespace", index)
	}
	if err != nil {
		return Link{}, fmt.Errorf("look interface %d up: %w", index, err)
	}
	return n.describe(l)
}

// noLink returns ErrNoLink with the names of the interfaces in the namespace. From
// these names a user sees whether the name or the namespace is wrong.
func (n *Net) noLink(name string, cause error) error {
	links, err := n.nl.LinkList()
	if err != nil {
		return fail(ErrNoLink, cause, "no network interface %s in this network namespace", name)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return fail(ErrNoLink, cause, "no network interface %s in this network namespace: use one of %s",
		name, strings.Join(names, ", "))
}

func (n *Net) describe(l netlink.Link) (Link, error) {
	port, vlan, err := resolve(l, n.nl)
	if err != nil {
		return Link{}, err
	}
	at, pt := l.Attrs(), port.Attrs()
	out := Link{
		Name: at.Name, Index: at.Index, Port: pt.Name, PortIndex: pt.Index, PortMTU: pt.MTU,
		VLAN: vlan, MAC: at.HardwareAddr, MTU: at.MTU, Netns: n.cookie,
		Up:      at.Flags&net.FlagUp != 0,
		Running: at.RawFlags&iffRunning != 0,
	}
	if err := joinBond(&out, port, n.nl); err != nil {
		return Link{}, err
	}
	out.RxQueues, out.TxQueues = n.queues(pt)
	out.Driver, _ = n.eth.driver(pt.Name) // Driver stays empty if the driver does not report a name
	return out, nil
}

// CheckUp returns ErrLinkDown if the interface or its parent is down. It returns
// ErrNoLink if the interface does not exist.
func (n *Net) CheckUp(name string) error {
	l, err := n.LookupLink(name)
	if err != nil {
		return err
	}
	for _, part := range []string{l.Port, l.Name, l.Bond} {
		if part == "" {
			continue
		}
		at, err := n.nl.LinkByName(part)
		if err == nil && at.Attrs().Flags&net.FlagUp == 0 {
			return fail(ErrLinkDown, nil, "%s is down: ip link set %s up", part, part)
		}
	}
	return nil
}

// links are the netlink calls that resolve needs.
type links interface {
	LinkByIndex(int) (netlink.Link, error)
	LinkList() ([]netlink.Link, error)
}

// resolve returns the interface that carries l's packets, and the packets' VLAN id.
func resolve(l netlink.Link, all links) (port netlink.Link, vlan uint16, err error) {
	if v, ok := l.(*netlink.Vlan); ok {
		if port, err = parent(v, all); err != nil {
			return nil, 0, err
		}
		vlan = uint16(v.VlanId)
		l = port
	}
	switch l.Type() {
	case "bond":
		return nil, 0, bond(l, all)
	case "vlan":
		return nil, 0, fail(ErrVLANParent, nil, "%s is a VLAN within a VLAN, so its packets have two tags: use an interface with one tag",
			l.Attrs().Name)
	}
	return l, vlan, nil
}

func parent(v *netlink.Vlan, all links) (netlink.Link, error) {
	at := v.Attrs()
	if v.VlanProtocol == netlink.VLAN_PROTOCOL_8021AD {
		return nil, fail(ErrVLANParent, nil, "%s uses 802.1ad tags: stag steers 802.1Q only", at.Name)
	}
	// NetNsID is not -1 if the parent is in another namespace. The parent's index then
	// means another interface here.
	if at.NetNsID >= 0 {
		return nil, fail(ErrVLANParent, nil, "the parent of %s is in another network namespace: run stag there, on the parent", at.Name)
	}
	port, err := all.LinkByIndex(at.ParentIndex)
	if err != nil {
		return nil, fail(ErrVLANParent, err, "the parent of %s cannot be looked up: %v", at.Name, err)
	}
	return port, nil
}

// iffRunning is the flag IFF_RUNNING: the interface is operational (RFC 2863).
const iffRunning = 0x40

// queues returns how many receive and transmit queues the driver runs. If the driver
// does not report them, queues returns the numbers that the interface was created with.
func (n *Net) queues(at *netlink.LinkAttrs) (rx, tx int) {
	c, err := n.eth.channels(at.Name)
	if err != nil {
		return at.NumRxQueues, at.NumTxQueues
	}
	return int(c.curRx + c.curCombined), int(c.curTx + c.curCombined)
}

// checkChannels checks that the program that has been attached to l's port has not changed how
// many queues the driver receives with. l is from before.
func (n *Net) checkChannels(l Link) error {
	c, err := n.eth.channels(l.Port)
	if err != nil {
		return nil // the driver has a fixed number of queues
	}
	return l.grown(c)
}

// grown returns ErrChannels if the driver receives with more queues than l has. virtio_net
// takes a queue of its own for each processor when a program is attached, if so many are to
// spare. The host then sends packets to those queues too, and an AF_XDP socket there never
// sends in zero-copy mode. With too few queues to spare, the driver takes none.
func (l Link) grown(c ethtoolChannels) error {
	added := int(c.curRx+c.curCombined) - l.RxQueues
	if added <= 0 {
		return nil
	}
	return fail(ErrChannels, nil, "while a program is attached, %s receives with %d queues instead of %d: its driver adds queues for XDP, and a socket cannot send there: leave the driver too few to spare: ethtool -L %s combined %d",
		l.Port, l.RxQueues+added, l.RxQueues, l.Port, int(c.maxCombined)-added+1)
}
