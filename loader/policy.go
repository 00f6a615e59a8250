package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrPolicy says that an IPsec policy of the kernel encrypts or blocks the packets. The
// engine's packets bypass the kernel, so the engine would send them in clear text.
var ErrPolicy = errors.New("an IPsec policy of this host covers the connection (ip xfrm policy), and the engine would send in clear text: use the kernel port (KernelPort), or remove the policy")

// Policy returns ErrPolicy if an IPsec policy covers the TCP segments of a connection
// in either direction. mark is the mark of the socket. Policy does not see the policies
// of single sockets (IP_XFRM_POLICY) and of xfrm interfaces.
func (n *Net) Policy(local, remote netip.AddrPort, mark uint32) error {
	if n.xfrm == nil {
		return nil // the kernel has no IPsec
	}
	family, now := netlink.FAMILY_V6, &n.policies6
	if remote.Addr().Is4() {
		family, now = netlink.FAMILY_V4, &n.policies4
	}
	list, err := now.Get(func() ([]netlink.XfrmPolicy, error) { return n.listPolicies(family) })
	if err != nil {
		return fmt.Errorf("ask for IPsec policies: %w", err)
	}
	if policed(list, netlink.XFRM_DIR_OUT, local, remote, mark) || policed(list, netlink.XFRM_DIR_IN, remote, local, mark) {
		return ErrPolicy
	}
	return nil
}

// listPolicies reads the kernel's policies, sorted by priority.
func (n *Net) listPolicies(family int) ([]netlink.XfrmPolicy, error) {
	list, err := n.xfrm.XfrmPolicyList(family)
	slices.SortStableFunc(list, func(a, b netlink.XfrmPolicy) int { return a.Priority - b.Priority })
	return list, err
}

// policed reports whether the first policy that covers packets from src to dst
// transforms or blocks them. The list must be sorted by priority.
func policed(list []netlink.XfrmPolicy, dir netlink.Dir, src, dst netip.AddrPort, mark uint32) bool {
	for _, p := range list {
		if p.Dir == dir && covers(&p, src, dst, mark) {
			return len(p.Tmpls) != 0 || p.Action == netlink.XFRM_POLICY_BLOCK
		}
	}
	return false
}

func covers(p *netlink.XfrmPolicy, src, dst netip.AddrPort, mark uint32) bool {
	switch {
	case p.Ifid != 0,
		p.Proto != 0 && p.Proto != unix.IPPROTO_TCP,
		p.SrcPort != 0 && p.SrcPort != int(src.Port()),
		p.DstPort != 0 && p.DstPort != int(dst.Port()),
		p.Mark != nil && mark&p.Mark.Mask != p.Mark.Value,
		p.Src != nil && !p.Src.Contains(src.Addr().AsSlice()),
		p.Dst != nil && !p.Dst.Contains(dst.Addr().AsSlice()):
		return false
	}
	return true
}

// openXfrm opens a netlink socket for IPsec. It returns nil if the kernel has no IPsec.
func openXfrm() (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_XFRM)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open a netlink socket for IPsec policies: %w", err)
	}
	return h, nil
}
