package iscsi_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestISERPathDeaths: paths of iSER die one after the other, and at times all of them, under
// verified writes and reads.
func TestISERPathDeaths(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{}, func(c *iscsi.ServerConfig) {
		overISER(c)
		c.Portals[0].Address = c.Address
	})
	n := 0
	outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), 10, func() {
		n++
		s.relays[n%2].cut()
		if n%5 == 0 {
			s.relays[1-n%2].cut()
		}
	})
	if down := s.count(iscsi.EventPathDown); down < 5 {
		t.Errorf("%d paths died", down)
	}
	s.become(iscsi.PathActive, iscsi.PathActive)
}

// TestPathsOverPorts: a disk over two interfaces that are taken over, with iSCSI and with
// iSER, under verified writes and reads. One link after the other is down. Each IO completes
// once, and no octet is wrong.
func TestPathsOverPorts(t *testing.T) {
	for _, scheme := range []string{"iscsi", "iser"} {
		t.Run(scheme, func(t *testing.T) { pathsOverPorts(t, scheme) })
	}
}

func pathsOverPorts(t *testing.T, scheme string) {
	s := rig.On(t)
	rig.NoLeaks(s)
	p := netns.XDPPair(t, pair.Config{})
	c := netns.SecondCable(t, p)
	adapters := map[pair.Side]*rdma.Adapter{}
	for _, side := range []pair.Side{ours, theirs} {
		netns.In(t, p, side, func() (err error) {
			adapters[side], err = rdma.Open(rdma.Config{Ports: []string{p.Ends[side].Name, c.Names[side]}, NoControl: true})
			return err
		})
		s.Cleanup(func() { s.Check(adapters[side].Close()) })
	}
	var portals, urls []string
	for _, host := range []netip.Addr{p.Ends[theirs].V4.Addr(), c.Hosts[theirs]} {
		at := netip.AddrPortFrom(host, 3260).String()
		urls = append(urls, scheme+"://"+at+"/"+ownTarget+"/1")
		if scheme == "iser" {
			at = "iser://" + at
		}
		portals = append(portals, at)
	}
	serveOn(t, ram(t, 64<<20), func(c *iscsi.ServerConfig) {
		c.Adapter, c.Address = adapters[theirs], portals[0]
		c.Portals = []iscsi.PortalConfig{{Address: portals[1]}}
	})
	d, err := iscsi.DialMultipath(s.Ctx(), urls, iscsi.Config{Adapter: adapters[ours], Ping: 200 * time.Millisecond})
	s.Must(err)
	defer func() { s.Check(d.Close()) }()
	state := func(i int, want iscsi.PathState) {
		s.Helper()
		s.Eventually("path "+want.String(), func() bool { return d.Paths()[i].State == want })
	}
	for i := range urls {
		state(i, iscsi.PathActive)
	}
	links, n := [2]string{p.Ends[ours].Name, c.Names[ours]}, 0
	outages(&s, newLoad(t, d, 16, 16<<10), len(links), func() {
		link := func(up bool) {
			netns.In(s, p, ours, func() error { return netns.SetLink(links[n], up) })
		}
		link(false)
		state(n, iscsi.PathDown)
		link(true)
		state(n, iscsi.PathActive)
		n++
	})
}
