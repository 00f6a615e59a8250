package loader

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestPoliced checks that the first policy that covers the packets decides.
func TestPoliced(t *testing.T) {
	src, dst := netip.MustParseAddrPort("192.0.2.1:1000"), netip.MustParseAddrPort("192.0.2.2:2000")
	block := func(s string) *net.IPNet {
		_, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	all, out := block("0.0.0.0/0"), netlink.XFRM_DIR_OUT
	esp := []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP}}
	encrypts := netlink.XfrmPolicy{Src: all, Dst: all, Dir: out, Tmpls: esp}
	with := func(change func(*netlink.XfrmPolicy)) netlink.XfrmPolicy {
		p := encrypts
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		list []netlink.XfrmPolicy
		want bool
	}{
		"none":                {nil, false},
		"all":                 {[]netlink.XfrmPolicy{encrypts}, true},
		"blocked":             {[]netlink.XfrmPolicy{{Src: all, Dst: all, Dir: out, Action: netlink.XFRM_POLICY_BLOCK}}, true},
		"allowed first":       {[]netlink.XfrmPolicy{{Src: all, Dst: all, Dir: out}, encrypts}, false},
		"forwarded packets":   {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Dir = netlink.XFRM_DIR_FWD })}, false},
		"another network":     {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Dst = block("198.51.100.0/24") })}, false},
		"this network":        {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Dst = block("192.0.2.0/24") })}, true},
		"UDP":                 {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Proto = 17 })}, false},
		"TCP":                 {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Proto = 6 })}, true},
		"another port":        {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.DstPort = 22 })}, false},
		"this port":           {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.DstPort = 2000 })}, true},
		"another mark":        {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Mark = &netlink.XfrmMark{Value: 1, Mask: 1} })}, false},
		"an xfrm interface's": {[]netlink.XfrmPolicy{with(func(p *netlink.XfrmPolicy) { p.Ifid = 7 })}, false},
	} {
		if got := policed(c.list, out, src, dst, 0); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
