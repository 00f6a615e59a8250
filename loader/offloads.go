package loader

import "golang.org/x/sys/unix"

// Offloads are the receive settings of a port that change what the program sees. A
// setting that the driver does not report is false.
type Offloads struct {
	GRO    bool // the kernel joins received segments
	LRO    bool // the NIC joins received segments
	RxVLAN bool // the NIC removes VLAN tags
}

// Offloads reads the settings of l's port.
func (n *Net) Offloads(l Link) Offloads {
	flags, err := n.eth.value(l.Port, unix.ETHTOOL_GFLAGS, 0)
	if err != nil {
		flags = 0
	}
	gro, err := n.eth.value(l.Port, unix.ETHTOOL_GGRO, 0)
	return Offloads{GRO: err == nil && gro != 0, LRO: flags&ethFlagLRO != 0, RxVLAN: flags&ethFlagRxVLAN != 0}
}

// HidesTags reports whether l's port removes the VLAN tags of packets before the
// program sees the packets.
func (o Offloads) HidesTags(l Link) bool { return o.RxVLAN && !l.Facts().KeepsTags }

// CheckTags returns ErrOffload if the NIC removes the VLAN tags of l's packets. Without
// the tags the program would not find the packets' connections.
func (n *Net) CheckTags(l Link) error { return n.Offloads(l).checkTags(l) }

func (o Offloads) checkTags(l Link) error {
	if !o.HidesTags(l) {
		return nil
	}
	return fail(ErrOffload, nil, "%s takes VLAN tags off packets before the program sees them: ethtool -K %s rxvlan off", l.Port, l.Port)
}

// CheckOffloads returns ErrOffload for generic mode if receive offload is on. The
// program would get joined segments of up to 64 KiB, which fit no chunk. In native mode
// the program runs before receive offload.
func (n *Net) CheckOffloads(l Link, generic bool) error {
	if !generic {
		return nil
	}
	on, err := n.eth.value(l.Port, unix.ETHTOOL_GGRO, 0)
	if err != nil || on == 0 {
		return nil // a driver that does not report GRO has none
	}
	return fail(ErrOffload, nil, "generic mode would get segments of %s joined to up to 64 KiB: ethtool -K %s gro off lro off", l.Port, l.Port)
}
