package loader

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
)

// Ports returns the names of the interfaces that an adapter must open for name: the
// members of a bond, or else the interface itself. The error is ErrBond if the bond has
// no members, or a mode in which stag cannot use them. It is ErrForeignProgram if the
// bond has an XDP program.
func (n *Net) Ports(name string) ([]string, error) {
	l, err := n.nl.LinkByName(name)
	if err != nil || l.Type() != "bond" {
		return []string{name}, nil // opening the interface explains the error
	}
	return portsOf(l, n.nl)
}

func portsOf(l netlink.Link, all links) ([]string, error) {
	name := l.Attrs().Name
	if b, ok := l.(*netlink.Bond); ok && !usableModes[b.Mode] {
		return nil, fail(ErrBond, nil, "the bond %s has the mode %v, in which members have different Ethernet addresses or send everything: use active-backup, 802.3ad, balance-xor or balance-rr", name, b.Mode)
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		return nil, fail(ErrForeignProgram, nil, "the bond %s has an XDP program, id %d, so that its members can have no other: detach it first (ip link set %s xdp off)", name, xdp.ProgId, name)
	}
	members, err := membersOf(l, all)
	if err != nil {
		return nil, fail(ErrBond, err, "look up the members of the bond %s: %v", name, err)
	}
	if len(members) == 0 {
		return nil, fail(ErrBond, nil, "%s is a bond without members: add one (ip link set eth1 master %s)", name, name)
	}
	return members, nil
}

// usableModes are the modes of bonds in which every member sends with the bond's Ethernet
// address, and a packet leaves through one member.
var usableModes = map[netlink.BondMode]bool{
	netlink.BOND_MODE_BALANCE_RR: true, netlink.BOND_MODE_ACTIVE_BACKUP: true,
	netlink.BOND_MODE_BALANCE_XOR: true, netlink.BOND_MODE_802_3AD: true,
}

// membersOf returns the names of a bond's members.
func membersOf(l netlink.Link, all links) (members []string, err error) {
	list, err := all.LinkList()
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.Attrs().MasterIndex == l.Attrs().Index {
			members = append(members, m.Attrs().Name)
		}
	}
	return members, nil
}

// bond returns ErrBond with the names of the bond's members.
func bond(l netlink.Link, all links) error {
	name := l.Attrs().Name
	members, err := membersOf(l, all)
	if err != nil {
		return fail(ErrBond, err, "%s is a bond: use one of its members instead", name)
	}
	if len(members) == 0 {
		return fail(ErrBond, nil, "%s is a bond without members: use a network interface of its own", name)
	}
	return fail(ErrBond, nil, "%s is a bond: use its members %s instead", name, strings.Join(members, ", "))
}

// joinBond makes out the description of a bond's member, if port is one. Routes and
// neighbours are the bond's.
func joinBond(out *Link, port netlink.Link, all links) error {
	at := port.Attrs()
	if at.MasterIndex == 0 || out.VLAN != 0 {
		return nil
	}
	master, err := all.LinkByIndex(at.MasterIndex)
	if err != nil {
		return fmt.Errorf("look up what %s is a member of: %w", at.Name, err)
	}
	if master.Type() != "bond" {
		return nil
	}
	is := master.Attrs()
	out.Bond, out.Index, out.MAC, out.MTU = is.Name, is.Index, is.HardwareAddr, is.MTU
	out.Active = activeMember(at)
	return nil
}

// activeMember reports whether an interface is a member of a bond that sends through it:
// the active slave, or a slave of the active aggregator, or one of several that balance.
func activeMember(at *netlink.LinkAttrs) bool {
	slave, ok := at.Slave.(*netlink.BondSlave)
	return ok && at.MasterIndex != 0 && slave.State == netlink.BondStateActive
}
