package loader

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// fakeLinks holds the interfaces of a namespace.
type fakeLinks []netlink.Link

func (f fakeLinks) LinkList() ([]netlink.Link, error) { return f, nil }

func (f fakeLinks) LinkByIndex(i int) (netlink.Link, error) {
	for _, l := range f {
		if l.Attrs().Index == i {
			return l, nil
		}
	}
	return nil, errors.New("no such index")
}

// TestResolvePort covers VLAN interfaces and bonds, which not every kernel can make.
func TestResolvePort(t *testing.T) {
	attrs := func(name string, index, parent, master int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name, a.Index, a.ParentIndex, a.MasterIndex = name, index, parent, master
		a.NetNsID = -1
		return a
	}
	vlan := func(a netlink.LinkAttrs, id int) *netlink.Vlan {
		return &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	}
	eth0 := &netlink.Device{LinkAttrs: attrs("eth0", 1, 0, 0)}
	eth0v100 := vlan(attrs("eth0.100", 2, 1, 0), 100)
	double := vlan(attrs("eth0.100.7", 3, 2, 0), 7)
	orphan := vlan(attrs("eth9.5", 4, 99, 0), 5)
	away := vlan(attrs("eth0.6", 5, 1, 0), 6)
	away.NetNsID = 3
	provider := vlan(attrs("eth0.8", 6, 1, 0), 8)
	provider.VlanProtocol = netlink.VLAN_PROTOCOL_8021AD
	bond0 := &netlink.Bond{LinkAttrs: attrs("bond0", 7, 0, 0)}
	eth1, eth2 := &netlink.Device{LinkAttrs: attrs("eth1", 8, 0, 7)}, &netlink.Device{LinkAttrs: attrs("eth2", 9, 0, 7)}
	onBond := vlan(attrs("bond0.4", 10, 7, 0), 4)
	empty := &netlink.Bond{LinkAttrs: attrs("bond1", 11, 0, 0)}
	all := fakeLinks{eth0, eth0v100, double, orphan, away, provider, bond0, eth1, eth2, onBond, empty}
	for _, row := range []struct {
		link netlink.Link
		port string
		vlan uint16
		err  error
		says string
	}{
		{eth0, "eth0", 0, nil, ""},
		{eth1, "eth1", 0, nil, ""}, // a member of a bond is allowed
		{eth0v100, "eth0", 100, nil, ""},
		{double, "", 0, ErrVLANParent, "two tags"},
		{orphan, "", 0, ErrVLANParent, "eth9.5"},
		{away, "", 0, ErrVLANParent, "another network namespace"},
		{provider, "", 0, ErrVLANParent, "802.1ad"},
		{bond0, "", 0, ErrBond, "eth1, eth2"},
		{onBond, "", 0, ErrBond, "eth1, eth2"},
		{empty, "", 0, ErrBond, "without members"},
	} {
		port, id, err := resolve(row.link, all)
		name := row.link.Attrs().Name
		if row.err != nil {
			if !errors.Is(err, row.err) || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v, want %v that says %q", name, err, row.err, row.says)
			}
			continue
		}
		if err != nil || port.Attrs().Name != row.port || id != row.vlan {
			t.Errorf("%s: %v VLAN %d, %v; want %s VLAN %d", name, port, id, err, row.port, row.vlan)
		}
	}
}
