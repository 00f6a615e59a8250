package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/loader"
)

// headers are an Ethernet header and a VLAN tag, in octets.
const headers = 14 + 4

// probeMTU compares the MTU with what a chunk holds. A longer packet never belongs to a
// connection, because connections announce shorter segments. But some drivers take no
// program at such an MTU.
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

// probeVLANOffload: a card that takes tags off hides them from the program.
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

// probeChecksum: the kernel at the other end of a veth leaves checksums to a
// device that is not there. An adapter accepts that, unless it is told not to.
func (v *view) probeChecksum(l loader.Link) Probe {
	const name = "checksums of the veth peer"
	if !l.Facts().Pair {
		return ok(name, "not a veth")
	}
	far, err := v.net.FarEnd(l)
	switch {
	case err != nil:
		return bad(name, "look at "+l.Port+" again", "%v", err)
	case far.Name == "":
		return ok(name, "the peer cannot be seen; what it leaves out is accepted, as a veth's packets pass no wire")
	case far.Sums:
		return ok(name, "%s computes them", far.Name)
	}
	return ok(name, "%s leaves them out, which is accepted, as a veth's packets pass no wire", far.Name)
}

// probeJoining: a card that joins packets makes what fits no chunk. In generic
// mode the kernel's own joining does, too, and loading refuses it.
func (v *view) probeJoining(l loader.Link) Probe {
	return joins("receive offload", l, v.net.Offloads(l))
}

// joins judges which of the two kinds of joining are on.
func joins(name string, l loader.Link, o loader.Offloads) Probe {
	if o.LRO {
		return hint(name, "ethtool -K "+l.Port+" lro off", "%s joins packets (LRO); some drivers take no XDP program with it", l.Port)
	}
	if o.GRO {
		return ok(name, "GRO, of what goes to the kernel; in native mode the program runs before it")
	}
	return ok(name, "off")
}

// plainQdiscs are those that do nothing to a packet but let it wait.
var plainQdiscs = []string{"noqueue", "mq", "pfifo_fast", "pfifo", "fq_codel", "fq"}

// probeQdisc: frames of a taken-over connection pass no queueing discipline.
func (v *view) probeQdisc(l loader.Link) Probe {
	const name = "traffic control"
	link, err := v.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return bad(name, "look at "+l.Port+" again", "%v", err)
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
