package loader

import (
	"strings"

	"github.com/vishvananda/netlink"
)

// ChecksumFix is the command, and where to run it, that makes the peers of l
// compute the checksums of what they send.
func (n *Net) ChecksumFix(l Link) string {
	if !l.Facts().Pair {
		return "run ethtool -K IFACE tx off on the machine that sends, with its interface; where this is a virtual machine, give its device csum=off"
	}
	far, err := n.FarEnd(l)
	if err != nil || far.Name == "" {
		return "run ethtool -K PEER tx off at the other end of the veth"
	}
	return strings.TrimSpace(far.Enter + " ethtool -K " + far.Name + " tx off")
}

// FarEnd is the other end of a veth.
type FarEnd struct {
	Name  string // "" if it cannot be seen from here
	Enter string // the command that enters its network namespace; "" if it is in this one
	Sums  bool   // it computes the checksums of what it sends
}

// FarEnd looks at the other end of l, which must be a veth. It also looks in the
// network namespaces that can be entered.
func (n *Net) FarEnd(l Link) (far FarEnd, err error) {
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
func (n *Net) farEndHere(index int, enter string) FarEnd {
	link, err := n.nl.LinkByIndex(index)
	if err != nil {
		return FarEnd{}
	}
	far := FarEnd{Name: link.Attrs().Name, Enter: enter}
	on, err := n.eth.value(far.Name, ethtoolGTxCsum, 0)
	far.Sums = err == nil && on == 0
	return far
}

// otherEnd is what a person must set at a veth's other end in another network namespace,
// where this process changes nothing.
func otherEnd() []Change {
	return []Change{{Link: "the other end", Setting: "tso and gso", Why: whySegments, Run: "ethtool -K PEER tso off gso off, there"}}
}

// vethPeer is the other end of a veth, nil where there is none to be seen.
func (n *Net) vethPeer(l Link) *netlink.LinkAttrs {
	port, err := n.nl.LinkByIndex(l.PortIndex)
	// A namespace's number means that the index is in that namespace.
	if err != nil || !l.Facts().Pair || port.Attrs().NetNsID >= 0 {
		return nil
	}
	peer, err := n.nl.LinkByIndex(port.Attrs().ParentIndex)
	if err != nil {
		return nil
	}
	return peer.Attrs()
}
