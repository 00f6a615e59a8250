package loader

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestBondMembers covers bonds and their members with fake interfaces, because not every
// kernel has bonds.
func TestBondMembers(t *testing.T) {
	attrs := func(name string, index, master int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name, a.Index, a.MasterIndex, a.MTU = name, index, master, 1500
		a.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}
		return a
	}
	bondOf := func(name string, index int, mode netlink.BondMode) *netlink.Bond {
		b := netlink.NewLinkBond(attrs(name, index, 0))
		b.Mode = mode
		return b
	}
	member := func(name string, index, master int, state netlink.BondSlaveState) *netlink.Device {
		a := attrs(name, index, master)
		a.Slave = &netlink.BondSlave{State: state}
		return &netlink.Device{LinkAttrs: a}
	}
	backup, balance := bondOf("bond0", 1, netlink.BOND_MODE_ACTIVE_BACKUP), bondOf("bond1", 2, netlink.BOND_MODE_BALANCE_ALB)
	empty, taken := bondOf("bond2", 3, netlink.BOND_MODE_802_3AD), bondOf("bond3", 4, netlink.BOND_MODE_802_3AD)
	taken.Xdp = &netlink.LinkXdp{Attached: true, ProgId: 77}
	eth1, eth2 := member("eth1", 5, 1, netlink.BondStateActive), member("eth2", 6, 1, netlink.BondStateBackup)
	bridge := &netlink.Bridge{LinkAttrs: attrs("br0", 7, 0)}
	onBridge := &netlink.Device{LinkAttrs: attrs("eth3", 8, 7)}
	left := member("eth4", 9, 0, netlink.BondStateActive)
	all := fakeLinks{backup, balance, empty, taken, eth1, eth2, bridge, onBridge, left}

	if ports, err := portsOf(backup, all); err != nil || !slices.Equal(ports, []string{"eth1", "eth2"}) {
		t.Errorf("the members of bond0 are %v, %v", ports, err)
	}
	for _, bad := range []struct {
		bond *netlink.Bond
		is   error
		says string
	}{
		{balance, ErrBond, "balance-alb"}, {empty, ErrBond, "without members"}, {taken, ErrForeignProgram, "id 77"},
	} {
		if _, err := portsOf(bad.bond, all); !errors.Is(err, bad.is) || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v, want %v that says %q", bad.bond.Name, err, bad.is, bad.says)
		}
	}
	for _, row := range []struct {
		port   netlink.Link
		want   Link
		active bool
	}{
		{eth1, Link{Bond: "bond0", Index: 1, MAC: backup.HardwareAddr, MTU: 1500}, true},
		{eth2, Link{Bond: "bond0", Index: 1, MAC: backup.HardwareAddr, MTU: 1500}, false},
		{onBridge, Link{Index: 99}, false},
		{left, Link{Index: 99}, false},
	} {
		got := Link{Index: 99}
		err := joinBond(&got, row.port, all)
		if err != nil || got.Bond != row.want.Bond || got.Index != row.want.Index || got.MAC.String() != row.want.MAC.String() || got.Active != row.active {
			t.Errorf("%s: %+v, %v; want %+v, active %v", row.port.Attrs().Name, got, err, row.want, row.active)
		}
	}
}
