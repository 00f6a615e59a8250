package loader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// probeMTU: what is longer than a chunk holds is never for a connection, as that
// announces shorter segments; but the driver must take a program all the same.
func probeMTU(l Link, needs Needs) Probe {
	const name = "MTU"
	longest := onePiece(l, needs.Generic, needs.Chunk) - ethernetLen - tagLen
	switch {
	case l.PortMTU <= longest:
		return ok(name, "%d", l.PortMTU)
	case l.Driver == "veth" || needs.Generic:
		return ok(name, "%d, and connections that are taken over use packets of up to %d", l.PortMTU, longest)
	}
	return hint(name, fmt.Sprintf("if the driver takes no program: ip link set %s mtu %d, at both ends", l.Port, longest),
		"%d, and connections that are taken over use packets of up to %d, which was tried on veth only", l.PortMTU, longest)
}

// probeVLANOffload: a card that takes tags off hides them from the program.
func (n *Net) probeVLANOffload(l Link) Probe {
	const name = "VLAN tags"
	flags, err := n.eth.value(l.Port, unix.ETHTOOL_GFLAGS, 0)
	on := err == nil && hidesTags(l, flags)
	switch {
	case on && l.VLAN != 0:
		return bad(name, fmt.Sprintf("ethtool -K %s rxvlan off", l.Port), "%s takes tags off packets before the program sees them", l.Port)
	case on:
		p := ok(name, "taken off by %s, which matters only when VLANs are used", l.Port)
		p.Fix = fmt.Sprintf("ethtool -K %s rxvlan off, to use VLANs", l.Port)
		return p
	}
	return ok(name, "left in place")
}

// hidesTags reports whether the card takes tags off. At a veth the other end writes
// them out before the program runs.
func hidesTags(l Link, flags uint32) bool { return flags&ethFlagRxVLAN != 0 && l.Driver != "veth" }

// CheckTags refuses an interface whose packets have tags that its card takes off:
// the program would not find their connections. ErrOffload.
func (n *Net) CheckTags(l Link) error {
	flags, err := n.eth.value(l.Port, unix.ETHTOOL_GFLAGS, 0)
	if err != nil {
		return nil // a driver that cannot say does not do it
	}
	return tagsHidden(l, flags)
}

func tagsHidden(l Link, flags uint32) error {
	if !hidesTags(l, flags) {
		return nil
	}
	return fail(ErrOffload, nil, "%s takes VLAN tags off packets before the program sees them: ethtool -K %s rxvlan off", l.Port, l.Port)
}

// probeChecksum: the kernel at the other end of a veth leaves checksums to a
// device that is not there. An adapter accepts that, unless it is told not to.
func (n *Net) probeChecksum(l Link) Probe {
	const name = "checksums of the veth peer"
	if l.Driver != "veth" {
		return ok(name, "not a veth")
	}
	far, err := n.farEnd(l)
	switch {
	case err != nil:
		return bad(name, "look at "+l.Port+" again", "%v", err)
	case far.name == "":
		return ok(name, "the peer cannot be seen; what it leaves out is accepted, as a veth's packets pass no wire")
	case far.sums:
		return ok(name, "%s computes them", far.name)
	}
	return ok(name, "%s leaves them out, which is accepted, as a veth's packets pass no wire", far.name)
}

// ChecksumFix is the command, and where to run it, that makes the peers of l
// compute the checksums of what they send.
func (n *Net) ChecksumFix(l Link) string {
	if l.Driver != "veth" {
		return "run ethtool -K IFACE tx off on the machine that sends, with its interface; where this is a virtual machine, give its device csum=off"
	}
	far, err := n.farEnd(l)
	if err != nil || far.name == "" {
		return "run ethtool -K PEER tx off at the other end of the veth"
	}
	return strings.TrimSpace(far.enter + " ethtool -K " + far.name + " tx off")
}

// farEnd is the other end of a veth.
type farEnd struct {
	name  string // "": it cannot be seen from here
	enter string // the command that enters its network namespace; "": it is in this one
	sums  bool   // it computes checksums
}

// farEnd looks at the other end of l, a veth, also in the namespaces that can be
// entered.
func (n *Net) farEnd(l Link) (far farEnd, err error) {
	link, err := n.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return far, err
	}
	at := link.Attrs()
	// A namespace id means that the index is in that namespace.
	if at.NetNsID < 0 {
		return n.farEndHere(at.ParentIndex, ""), nil
	}
	finder := newFinder()
	defer finder.close()
	for _, s := range finder.others() {
		id, err := netlink.GetNetNsIdByFd(int(s.f.Fd()))
		if err != nil || id != at.NetNsID {
			continue
		}
		s.Do(func() error {
			there, err := Open()
			if err != nil {
				return err
			}
			defer there.Close()
			far = there.farEndHere(at.ParentIndex, s.enter())
			return nil
		})
		break
	}
	return far, nil
}

// farEndHere looks at an interface of n's namespace.
func (n *Net) farEndHere(index int, enter string) farEnd {
	link, err := n.nl.LinkByIndex(index)
	if err != nil {
		return farEnd{}
	}
	far := farEnd{name: link.Attrs().Name, enter: enter}
	on, err := n.eth.value(far.name, ethtoolGTxCsum, 0)
	far.sums = err == nil && on == 0
	return far
}

// probeJoining: a card that joins packets makes what fits no chunk. In generic
// mode the kernel's own joining does, too, and loading refuses it.
func (n *Net) probeJoining(l Link) Probe {
	const name = "receive offload"
	// A driver that cannot say has none.
	flags, _ := n.eth.value(l.Port, unix.ETHTOOL_GFLAGS, 0)
	gro, _ := n.eth.value(l.Port, unix.ETHTOOL_GGRO, 0)
	return joins(name, l, flags, gro)
}

// joins judges what of the two kinds of joining is on.
func joins(name string, l Link, flags, gro uint32) Probe {
	if flags&ethFlagLRO != 0 {
		return hint(name, "ethtool -K "+l.Port+" lro off", "%s joins packets (LRO); some drivers take no XDP program with it", l.Port)
	}
	if gro != 0 {
		return ok(name, "GRO, of what goes to the kernel; in native mode the program runs before it")
	}
	return ok(name, "off")
}

// plainQdiscs are those that do nothing to a packet but let it wait.
var plainQdiscs = []string{"noqueue", "mq", "pfifo_fast", "pfifo", "fq_codel", "fq"}

// probeQdisc: frames of a taken-over connection pass no queueing discipline.
func (n *Net) probeQdisc(l Link) Probe {
	const name = "traffic control"
	link, err := n.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return bad(name, "look at "+l.Port+" again", "%v", err)
	}
	all, err := n.nl.QdiscList(link)
	if err != nil {
		return hint(name, "tc qdisc show dev "+l.Port, "cannot be told: %v", err)
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
