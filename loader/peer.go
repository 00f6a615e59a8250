package loader

import (
	"strings"

	"github.com/vishvananda/netlink"
)

// ChecksumFix returns the command that makes l's peers compute the checksums of the
// packets that they send. It also says where to run the command.
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
	Name  string // name of the other end; "" if the other end cannot be found
	Enter string // command that enters the network namespace of the other end; "" if that is the present one
	Sums  bool   // the other end computes the checksums of the packets that it sends
}

// FarEnd looks at the other end of l, which must be a veth. It searches the present
// network namespace and all namespaces that can be entered.
func (n *Net) FarEnd(l Link) (far FarEnd, err error) {
	link, err := n.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return far, err
	}
	at := link.Attrs()
	// A namespace id of 0 or more means that ParentIndex belongs to that namespace.
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

// farEndHere looks at an interface in n's namespace.
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

// otherEnd returns the settings that an operator must change at a veth's other end in
// another network namespace. This process changes nothing there.
func otherEnd() []Change {
	return []Change{{Link: "the other end", Setting: "tso and gso", Why: whySegments, Run: "ethtool -K PEER tso off gso off, there"}}
}

// vethPeer returns the other end of a veth, or nil if that end cannot be seen.
func (n *Net) vethPeer(l Link) *netlink.LinkAttrs {
	port, err := n.nl.LinkByIndex(l.PortIndex)
	// A namespace id of 0 or more means that ParentIndex belongs to that namespace.
	if err != nil || !l.Facts().Pair || port.Attrs().NetNsID >= 0 {
		return nil
	}
	peer, err := n.nl.LinkByIndex(port.Attrs().ParentIndex)
	if err != nil {
		return nil
	}
	return peer.Attrs()
}
