package loader

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
)

// Link is a network interface as it was when it was looked up.
type Link struct {
	// Name and Index are the interface's own: what routes and neighbours
	// refer to.
	Name  string
	Index int

	// Port and PortIndex are the interface whose hook and queues its packets
	// come through: itself or, for a VLAN interface, its parent. What follows
	// up to TxQueues is the port's.
	Port      string
	PortIndex int
	PortMTU   int    // octets
	Driver    string // "" when the driver does not say
	RxQueues  int
	TxQueues  int

	VLAN    uint16 // id of a VLAN interface, else 0
	MAC     net.HardwareAddr
	MTU     int  // octets, of the IP packet
	Up      bool // administratively
	Running bool // has a carrier
	Netns   uint64
}

// LookupLink looks an interface up in the network namespace of the calling OS
// thread, as Net.LookupLink does.
func LookupLink(name string) (Link, error) {
	n, err := Open()
	if err != nil {
		return Link{}, err
	}
	defer n.Close()
	return n.LookupLink(name)
}

// LookupLink looks an interface up by its name. A VLAN interface resolves to
// its parent's port with the VLAN id. A bond has no queues of its own: the
// error, ErrBond, names its members. ErrNoLink when there is none of the name.
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

// LinkAt is LookupLink by index: that stays when an interface is renamed. ErrNoLink
// when it is gone, or in another namespace.
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

// noLink names what there is instead, which is how a wrong name or namespace
// is found soonest.
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
	out.RxQueues, out.TxQueues = n.queues(pt)
	out.Driver, _ = n.eth.driver(pt.Name) // a driver need not say
	return out, nil
}

// CheckUp refuses an interface that is down, or whose parent is. ErrLinkDown,
// ErrNoLink.
func (n *Net) CheckUp(name string) error {
	l, err := n.LookupLink(name)
	if err != nil {
		return err
	}
	for _, part := range []string{l.Port, l.Name} {
		at, err := n.nl.LinkByName(part)
		if err == nil && at.Attrs().Flags&net.FlagUp == 0 {
			return fail(ErrLinkDown, nil, "%s is down: ip link set %s up", part, part)
		}
	}
	return nil
}

// links is what resolving needs of netlink.
type links interface {
	LinkByIndex(int) (netlink.Link, error)
	LinkList() ([]netlink.Link, error)
}

// resolve finds the interface that carries l's packets, and their VLAN id.
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
		return nil, 0, fail(ErrVLANParent, nil, "%s is a VLAN within a VLAN, of which packets with two tags come: use an interface with one tag",
			l.Attrs().Name)
	}
	return l, vlan, nil
}

func parent(v *netlink.Vlan, all links) (netlink.Link, error) {
	at := v.Attrs()
	if v.VlanProtocol == netlink.VLAN_PROTOCOL_8021AD {
		return nil, fail(ErrVLANParent, nil, "%s uses 802.1ad tags: stag steers 802.1Q only", at.Name)
	}
	// A number other than -1 means that the parent's index is in another
	// namespace, where it means another interface here.
	if at.NetNsID >= 0 {
		return nil, fail(ErrVLANParent, nil, "the parent of %s is in another network namespace: run stag there, on the parent", at.Name)
	}
	port, err := all.LinkByIndex(at.ParentIndex)
	if err != nil {
		return nil, fail(ErrVLANParent, err, "the parent of %s cannot be looked up: %v", at.Name, err)
	}
	return port, nil
}

// bond is the error for a bond, which names its members.
func bond(l netlink.Link, all links) error {
	name, index := l.Attrs().Name, l.Attrs().Index
	list, err := all.LinkList()
	if err != nil {
		return fail(ErrBond, err, "%s is a bond: use one of its members instead", name)
	}
	var members []string
	for _, m := range list {
		if m.Attrs().MasterIndex == index {
			members = append(members, m.Attrs().Name)
		}
	}
	if len(members) == 0 {
		return fail(ErrBond, nil, "%s is a bond without members: use a network interface of its own", name)
	}
	return fail(ErrBond, nil, "%s is a bond: use its members %s instead", name, strings.Join(members, ", "))
}

// iffRunning is IFF_RUNNING: operational by RFC 2863.
const iffRunning = 0x40

// queues is how many receive and transmit queues the driver runs. A driver that
// cannot say has as many as it was made with.
func (n *Net) queues(at *netlink.LinkAttrs) (rx, tx int) {
	c, err := n.eth.channels(at.Name)
	if err != nil {
		return at.NumRxQueues, at.NumTxQueues
	}
	return int(c.curRx + c.curCombined), int(c.curTx + c.curCombined)
}
