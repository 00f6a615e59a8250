package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/loader"
)

// headers is the length of an Ethernet header and a VLAN tag, in octets.
const headers = 14 + 4

// probeMTU compares the MTU with the size of a chunk. A larger MTU does no harm to
// connections, because they announce an MSS that fits the chunk. But some drivers
// accept no program at such an MTU.
func probeMTU(l loader.Link, needs Needs) Probe {
	const name = "MTU"
	longest := l.Longest(needs.Generic, needs.Chunk) - headers
	switch {
	case l.PortMTU <= longest:
		return ok(name, "%d", l.PortMTU)
	case l.Facts().Tried || needs.Generic:
		return ok(name, "%d, and connections that are taken over use packets of up to %d", l.PortMTU, longest)
	}
	smaller := longest
	if mtu := l.Facts().MTU; mtu != 0 {
		smaller = min(longest, mtu)
	}
	return hint(name, fmt.Sprintf("if the driver takes no program: ip link set %s mtu %d, at both ends", l.Port, smaller),
		"%d, and connections that are taken over use packets of up to %d, which was tried on veth only", l.PortMTU, longest)
}

// probeVLANOffload checks that the NIC does not remove VLAN tags before the program
// sees the packets.
func (v *view) probeVLANOffload(l loader.Link) Probe {
	const name = "VLAN tags"
	on := v.net.Offloads(l).HidesTags(l)
	switch {
	case on && l.VLAN != 0:
		return bad(name, fmt.Sprintf("ethtool -K %s rxvlan off", l.Port), "%s takes tags off packets before the program sees them", l.Port)
	case on:
		return hint(name, fmt.Sprintf("ethtool -K %s rxvlan off, to use VLANs", l.Port),
			"taken off by %s, which matters only when VLANs are used", l.Port)
	}
	return ok(name, "left in place")
}

// probeChecksum reports whether a veth's peer computes checksums. The kernel at the
// other end may leave the checksums to a device that does not exist. By default an
// adapter accepts packets without checksums on a veth.
func (v *view) probeChecksum(l loader.Link) Probe {
	const name = "checksums of the veth peer"
	if !l.Facts().Pair {
		return ok(name, "not a veth")
	}
	far, err := v.net.FarEnd(l)
	switch {
	case err != nil:
		return unknown(name, "look at "+l.Port+" again", "%v", err)
	case far.Name == "":
		return ok(name, "the peer cannot be seen; what it leaves out is accepted, as a veth's packets pass no wire")
	case far.Sums:
		return ok(name, "%s computes them", far.Name)
	}
	return ok(name, "%s leaves them out, which is accepted, as a veth's packets pass no wire", far.Name)
}

// probeJoining checks the receive offloads. A joined packet fits no chunk. Native mode
// needs LRO off. Generic mode also needs GRO off, which the load itself checks.
func (v *view) probeJoining(l loader.Link) Probe {
	return joins("receive offload", l, v.net.Offloads(l))
}

// joins returns the row for the receive offloads in o.
func joins(name string, l loader.Link, o loader.Offloads) Probe {
	if o.LRO {
		return hint(name, "ethtool -K "+l.Port+" lro off", "%s joins packets (LRO); some drivers take no XDP program with it", l.Port)
	}
	if o.GRO {
		return ok(name, "GRO, of what goes to the kernel; in native mode the program runs before it")
	}
	return ok(name, "off")
}

// plainQdiscs are the queueing disciplines that only delay packets.
var plainQdiscs = []string{"noqueue", "mq", "pfifo_fast", "pfifo", "fq_codel", "fq"}

// probeQdisc looks for queueing disciplines. The engine's frames bypass them.
func (v *view) probeQdisc(l loader.Link) Probe {
	const name = "traffic control"
	link, err := v.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return unknown(name, "look at "+l.Port+" again", "%v", err)
	}
	all, err := v.nl.QdiscList(link)
	if err != nil {
		return unknown(name, "tc qdisc show dev "+l.Port, "cannot be told: %v", err)
	}
	var set []string
	for _, q := range all {
		if !slices.Contains(plainQdiscs, q.Type()) && !slices.Contains(set, q.Type()) {
			set = append(set, q.Type())
		}
	}
	if len(set) > 0 {
		return hint(name, "tc qdisc show dev "+l.Port+": do not rely on it for stag's connections", "connections that were taken over bypass it (%s)", strings.Join(set, ", "))
	}
	return ok(name, "none")
}
