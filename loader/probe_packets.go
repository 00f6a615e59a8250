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
	on := err == nil && flags&ethFlagRxVLAN != 0
	switch {
	case on && l.Driver == "veth": // the peer writes tags out before the program runs
		return ok(name, "left in place by veth")
	case on && l.VLAN != 0:
		return bad(name, fmt.Sprintf("ethtool -K %s rxvlan off", l.Port), "%s takes tags off packets before the program sees them", l.Port)
	case on:
		p := ok(name, "taken off by %s, which matters only when VLANs are used", l.Port)
		p.Fix = fmt.Sprintf("ethtool -K %s rxvlan off, to use VLANs", l.Port)
		return p
	}
	return ok(name, "left in place")
}

// probeChecksum: the kernel at the other end of a veth leaves checksums to a
// device that is not there.
func (n *Net) probeChecksum(l Link) Probe {
	const name = "checksums of the veth peer"
	if l.Driver != "veth" {
		return ok(name, "not a veth")
	}
	link, err := n.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return bad(name, "look at "+l.Port+" again", "%v", err)
	}
	at := link.Attrs()
	// A namespace id means that the index is in that namespace.
	if at.NetNsID >= 0 {
		return probeFarChecksum(name, at)
	}
	peer, err := n.nl.LinkByIndex(at.ParentIndex)
	if err != nil {
		return hidden(name, at)
	}
	return n.peerChecksum(name, peer.Attrs().Name, "")
}

// peerChecksum looks at the peer called peer in n's namespace, which is entered
// by the command enter.
func (n *Net) peerChecksum(name, peer, enter string) Probe {
	fix := strings.TrimSpace(enter + " ethtool -K " + peer + " tx off")
	on, err := n.eth.value(peer, ethtoolGTxCsum, 0)
	if err != nil {
		return bad(name, fix, "%v", err)
	}
	if on != 0 {
		return bad(name, fix, "%s sends segments with incomplete checksums", peer)
	}
	return ok(name, "%s computes them", peer)
}

// hidden is a peer in a namespace that has no name and no process, or that may
// not be entered.
func hidden(name string, at *netlink.LinkAttrs) Probe {
	return hint(name, fmt.Sprintf("there, on interface %d: ethtool -k PEER shows tx-checksumming, and ethtool -K PEER tx off turns it off", at.ParentIndex),
		"the peer is in another network namespace and cannot be seen from here").wants(capSysAdmin)
}

// probeFarChecksum looks for the peer in the namespaces that can be entered. The
// number that the kernel gives a namespace says which one it is.
func probeFarChecksum(name string, at *netlink.LinkAttrs) Probe {
	finder := newFinder()
	defer finder.close()
	for _, s := range finder.others() {
		id, err := netlink.GetNetNsIdByFd(int(s.f.Fd()))
		if err != nil || id != at.NetNsID {
			continue
		}
		p := hidden(name, at)
		s.Do(func() error {
			n, err := Open()
			if err != nil {
				return err
			}
			defer n.Close()
			if peer, err := n.nl.LinkByIndex(at.ParentIndex); err == nil {
				p = n.peerChecksum(name, peer.Attrs().Name, s.enter())
			}
			return nil
		})
		return p
	}
	return hidden(name, at)
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
