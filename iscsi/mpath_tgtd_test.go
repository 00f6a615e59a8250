package iscsi_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// secondAddress gives the target's interface another address, or takes it away. Packets to
// an address that is not there are dropped without an answer.
func secondAddress(s *stage, a netip.Addr, there bool) {
	s.Helper()
	netns.In(s, s.pair, theirs, func() error {
		link, err := netlink.LinkByName(s.pair.Ends[theirs].Name)
		if err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(s.pair.Ends[theirs].V4.Bits(), 32)}}
		if there {
			return netlink.AddrAdd(link, addr)
		}
		return netlink.AddrDel(link, addr)
	})
}

// TestPathsToTgtd: a disk of tgtd over two portals, under verified writes and reads. One
// path is silent, the target is killed, and the link is down. Each IO completes once, and no
// octet is wrong.
func TestPathsToTgtd(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{EveryAddress: true})
	second := s.target.Portal().Addr().Next().Next()
	secondAddress(s, second, true)
	d := s.dial("?path="+netip.AddrPortFrom(second, s.target.Portal().Port()).String(), iscsi.Config{Ping: 200 * time.Millisecond})
	become := func(want ...iscsi.PathState) {
		s.Helper()
		s.Eventually("paths", func() bool {
			for i, p := range d.Paths() {
				if p.State != want[i] {
					return false
				}
			}
			return true
		})
	}
	become(iscsi.PathActive, iscsi.PathActive)
	outage := 0
	outages(&s.Stage, newLoad(t, d, 16, 64<<10), 3, func() {
		switch outage++; outage {
		case 1:
			secondAddress(s, second, false)
			become(iscsi.PathActive, iscsi.PathDown)
			secondAddress(s, second, true)
		case 2:
			s.target.Kill()
			s.target.Run()
		case 3:
			link := func(up bool) {
				netns.In(s, s.pair, ours, func() error { return netns.SetLink(s.pair.Ends[ours].Name, up) })
			}
			link(false)
			become(iscsi.PathDown, iscsi.PathDown)
			link(true)
		}
		become(iscsi.PathActive, iscsi.PathActive)
	})
	rig.Check(t, d.Err())
}
