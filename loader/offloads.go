package loader

import "golang.org/x/sys/unix"

// Offloads are settings of a port's receive side that decide what the program sees.
// A driver that cannot say has them off.
type Offloads struct {
	GRO    bool // the kernel joins segments that it received
	LRO    bool // the card joins segments
	RxVLAN bool // the card takes VLAN tags off
}

// Offloads returns the settings of l's port.
func (n *Net) Offloads(l Link) Offloads {
	flags, err := n.eth.value(l.Port, unix.ETHTOOL_GFLAGS, 0)
	if err != nil {
		flags = 0
	}
	gro, err := n.eth.value(l.Port, unix.ETHTOOL_GGRO, 0)
	return Offloads{GRO: err == nil && gro != 0, LRO: flags&ethFlagLRO != 0, RxVLAN: flags&ethFlagRxVLAN != 0}
}

// HidesTags reports whether l's port takes VLAN tags off packets before the program
// sees them.
func (o Offloads) HidesTags(l Link) bool { return o.RxVLAN && !l.Facts().KeepsTags }

// CheckTags refuses an interface whose card takes off the VLAN tags that its packets
// have, as the program would not find their connections. ErrOffload.
func (n *Net) CheckTags(l Link) error { return n.Offloads(l).checkTags(l) }

func (o Offloads) checkTags(l Link) error {
	if !o.HidesTags(l) {
		return nil
	}
	return fail(ErrOffload, nil, "%s takes VLAN tags off packets before the program sees them: ethtool -K %s rxvlan off", l.Port, l.Port)
}

// CheckOffloads refuses generic mode behind receive offload (ErrOffload): the
// program would get segments joined to up to 64 KiB, which fit no chunk. In native
// mode the program runs before receive offload.
func (n *Net) CheckOffloads(l Link, generic bool) error {
	if !generic {
		return nil
	}
	on, err := n.eth.value(l.Port, unix.ETHTOOL_GGRO, 0)
	if err != nil || on == 0 {
		return nil // a driver that cannot say has none to turn off
	}
	return fail(ErrOffload, nil, "generic mode would get segments of %s joined to up to 64 KiB: ethtool -K %s gro off lro off", l.Port, l.Port)
}
