package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/test/netns"
)

// cards is a rig with two local interfaces in one adapter, each with a cable to the peer.
type cards struct {
	*rig
	nics   [2]*nic.NIC
	moved  [6]atomic.Int64 // moves by cause
	failed atomic.Int64
	frozen atomic.Int64 // sum of Frozen, in nanoseconds
}

// newCards makes the rig. Routes to the peer lead through both cables, and the first cable
// has the better metric. If instances are named, the programs stay in them.
func newCards(t *testing.T, instances ...string) *cards {
	t.Helper()
	return cardsOnVLAN(t, 0, instances...)
}

// cardsOnVLAN is newCards for cables that carry only one VLAN. 0 means no VLAN.
func cardsOnVLAN(t *testing.T, id uint16, instances ...string) *cards {
	t.Helper()
	c := &cards{rig: newStage(t, setup{})}
	// The ends of the second cable get different interface indices. The kernel takes a veth
	// end whose index is the same as its peer's for a physical interface, and reports changes
	// of its carrier at most once a second.
	c.ip(ours, "link", "add", "spare0", "type", "veth", "peer", "name", "spare1")
	c.ip(ours, "link", "del", "spare0")
	c.secondCable()
	if id != 0 {
		tagging(t, c.pair, id)
		c.tagging("q0", "q1", id)
	}
	for side, end := range []string{"q0", "q1"} {
		c.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
	}
	for i, name := range instances {
		c.stayOn([]string{c.pair.Ends[ours].Name, "q0"}[i], name)
	}
	c.open(id, c.pair.Ends[ours].Name, "q0")
	return c
}

// open offloads two local interfaces as one adapter, for a VLAN or 0.
func (c *cards) open(id uint16, links ...string) {
	c.Helper()
	moved := func(m nic.Movement) {
		if m.Err != nil {
			c.failed.Add(1)
			return
		}
		c.moved[m.Cause].Add(1)
		c.frozen.Add(int64(m.Frozen))
	}
	first := nic.Config{Link: links[0], VLAN: id, RxFrames: 512, Moved: moved, Log: c.logged()}
	second := first
	second.Link = links[1]
	c.in(ours, func() error {
		all, err := nic.OpenAll(first, second)
		if err != nil {
			return err
		}
		c.nic, c.nics = all[0], [2]*nic.NIC(all)
		return nil
	})
	c.Cleanup(func() { c.Check(errors.Join(c.nics[0].Close(), c.nics[1].Close())) })
}

// total returns how many moves succeeded.
func (c *cards) total() (n int64) {
	for i := range c.moved {
		n += c.moved[i].Load()
	}
	return n
}

// routeBy makes the kernel's route to the other side lead through a cable.
func (c *cards) routeBy(from pair.Side, cable int) {
	c.Helper()
	to := from.Other()
	dev, via := c.pair.Ends[from].Name, c.addr(to, false)
	if cable == 1 {
		dev, via = [2]string{"q0", "q1"}[from], [2]string{"198.18.0.2", "198.18.0.1"}[from]
	}
	if cable == 0 {
		c.ip(from, "route", "replace", c.addr(to, false)+"/32", "dev", dev, "src", c.addr(from, false))
		return
	}
	c.ip(from, "route", "replace", c.addr(to, false)+"/32", "via", via, "dev", dev, "src", c.addr(from, false))
}

// at waits until the connection is at a card.
func (c *cards) at(x running, card int) {
	c.Helper()
	x.movesTo(c.nics[card])
}

// whole checks that no packet was lost within stag.
func (c *cards) whole() {
	c.Helper()
	for _, n := range c.nics {
		if s := n.Counters().Strays; s != 0 {
			c.Errorf("%d segments reached the kernel", s)
		}
	}
	if n := c.failed.Load(); n != 0 {
		c.Errorf("%d moves failed", n)
	}
}

// TestFollowsTheRoute changes the routes of both ends 40 times under two-way fire. The
// connection follows the route of its own end, wherever the peer's segments arrive.
func TestFollowsTheRoute(t *testing.T) {
	t.Parallel()
	const volume, moves = 256 << 20, 40
	c := newCards(t)
	x := c.unfinished(volume)
	for i := range moves {
		x.reach(uint64(i+1) * (volume / (moves + 4)))
		c.routeBy(ours, (i+1)%2)
		if i%3 != 0 {
			c.routeBy(theirs, (i/3)%2)
		}
		c.at(x, (i+1)%2)
	}
	x.finish()
	c.whole()
	c.told(moves, nic.CauseRoute)
	t.Logf("frozen %v on average", time.Duration(c.frozen.Load()/moves))
	s := x.flow.Final()
	if s.ResetsIn+s.ResetsOut != 0 || s.OctetsAcked != volume {
		t.Errorf("%d octets acknowledged, resets %d and %d", s.OctetsAcked, s.ResetsIn, s.ResetsOut)
	}
}

// TestMoveToUnderFire moves a connection without a change of routes: Forced. The peer's
// segments go on arriving at the first interface.
func TestMoveToUnderFire(t *testing.T) {
	t.Parallel()
	const volume, moves = 256 << 20, 100
	c := newCards(t)
	x := c.unfinished(volume)
	for i := range moves {
		x.reach(uint64(i+1) * (volume / (moves + 4)))
		c.Must(x.flow.MoveTo(c.Ctx(), c.nics[(i+1)%2], nic.Shift{Forced: i%2 == 0}))
	}
	x.finish()
	c.whole()
	if n := c.moved[nic.CauseAsked].Load(); n != moves {
		t.Errorf("%d moves, want %d", n, moves)
	}
}

// TestInterfaceDies takes the first interface away under fire in several ways. The
// connection goes on over the second one.
func TestInterfaceDies(t *testing.T) {
	for _, way := range []struct {
		name   string
		causes []nic.Cause // any of them
		kill   func(*cards)
	}{
		{"administratively down", []nic.Cause{nic.CauseCarrier, nic.CauseRoute}, func(c *cards) { c.ip(ours, "link", "set", c.pair.Ends[ours].Name, "down") }},
		{"carrier lost", []nic.Cause{nic.CauseCarrier, nic.CauseRoute}, func(c *cards) { c.ip(theirs, "link", "set", c.pair.Ends[theirs].Name, "down") }},
		{"deleted", []nic.Cause{nic.CauseLost, nic.CauseCarrier, nic.CauseRoute}, func(c *cards) { c.deleteCable(ours) }},
		{"program detached", []nic.Cause{nic.CauseLost}, func(c *cards) {
			c.in(ours, func() error {
				_, err := loader.Unload(loader.UnloadOptions{Instance: filepath.Join(loader.Root, "shift0"), Force: true})
				return err
			})
			c.ip(theirs, "route", "del", c.addr(ours, false)+"/32", "dev", c.pair.Ends[theirs].Name)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			c := newCards(t, "shift0", "shift1")
			c.addressesOnLoopback()
			x := c.unfinished(64 << 20)
			x.reach(8 << 20)
			way.kill(c)
			c.at(x, 1)
			x.finish()
			n := int64(0)
			for _, cause := range way.causes {
				n += c.moved[cause].Load()
			}
			if n != 1 || c.total() != 1 {
				t.Errorf("%d moves for the causes %v of %d", n, way.causes, c.total())
			}
		})
	}
}

// addressesOnLoopback moves both ends' addresses to their loopback interfaces, as routing
// daemons have it, with a route over each cable. The second cable has a worse metric.
func (c *cards) addressesOnLoopback() {
	c.Helper()
	for _, side := range []pair.Side{ours, theirs} {
		end, other := c.pair.Ends[side].Name, [2]string{"q0", "q1"}[side]
		c.ip(side, "addr", "add", [2]string{"198.18.1.1/24", "198.18.1.2/24"}[side], "dev", end)
		c.ip(side, "addr", "del", c.pair.Ends[side].V4.String(), "dev", end)
		c.ip(side, "addr", "add", c.addr(side, false)+"/32", "dev", "lo")
		to := c.addr(side.Other(), false) + "/32"
		c.ip(side, "route", "add", to, "via", [2]string{"198.18.1.2", "198.18.1.1"}[side], "dev", end, "src", c.addr(side, false), "metric", "10")
		c.ip(side, "route", "add", to, "via", [2]string{"198.18.0.2", "198.18.0.1"}[side], "dev", other, "src", c.addr(side, false), "metric", "20")
		for _, name := range []string{"all", end, other} {
			c.in(side, func() error { return netns.Sysctl("ipv4/conf/"+name+"/ignore_routes_with_linkdown", "1") })
		}
	}
}

// TestDrainedInterface bars an interface. No connection follows its route there until the
// bar is lifted.
func TestDrainedInterface(t *testing.T) {
	c := newCards(t)
	x := c.unfinished(32 << 20)
	x.reach(1 << 20)
	c.nics[1].Bar(nic.BarDrained)
	c.routeBy(ours, 1)
	if err := x.flow.MoveTo(context.Background(), c.nics[1], nic.Shift{}); err == nil {
		t.Error("a connection moved to a barred interface")
	}
	x.reach(8 << 20)
	if x.flow.NIC() != c.nics[0] {
		t.Error("the connection followed its route to a barred interface")
	}
	c.nics[1].Unbar(nic.BarDrained)
	c.at(x, 1)
	x.finish()
}

// TestPortsComeAndGo adds a third interface to an adapter under fire, moves the connection
// there, and removes the first two. Then the interfaces come back.
func TestPortsComeAndGo(t *testing.T) {
	const volume = 192 << 20
	c := newCards(t)
	c.cable("r0", "r1", "198.18.2")
	for side, end := range []string{"r0", "r1"} {
		c.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
	}
	x := c.unfinished(volume)
	x.reach(8 << 20)
	var third *nic.NIC
	c.in(ours, func() (err error) {
		third, err = c.nics[0].Add(nic.Config{Link: "r0", RxFrames: 512})
		return err
	})
	c.Cleanup(func() { c.Check(third.Close()) })
	for side, via := range []string{"198.18.2.2", "198.18.2.1"} {
		side := pair.Side(side)
		c.ip(side, "route", "replace", c.addr(side.Other(), false)+"/32", "via", via, "dev", []string{"r0", "r1"}[side], "src", c.addr(side, false))
	}
	x.movesTo(third)
	x.reach(40 << 20)
	c.Must(c.nics[0].Close())
	c.Must(c.nics[1].Close())
	x.reach(80 << 20)
	var back *nic.NIC
	c.in(ours, func() (err error) {
		back, err = third.Add(nic.Config{Link: "q0", RxFrames: 512})
		return err
	})
	c.Cleanup(func() { c.Check(back.Close()) })
	for range 10 {
		c.Must(x.flow.MoveTo(c.Ctx(), back, nic.Shift{Forced: true}))
		c.Must(x.flow.MoveTo(c.Ctx(), third, nic.Shift{}))
	}
	x.finish()
	c.whole()
	if _, err := third.Add(nic.Config{Link: "q0"}); err == nil {
		t.Error("an interface was opened twice")
	}
}

// TestAsymmetricPath lets all segments of the peer arrive at the other interface for ever.
// The connection stays where its own route leads, although routes are looked up again.
func TestAsymmetricPath(t *testing.T) {
	c := newCards(t)
	c.routeBy(theirs, 1)
	x := c.transfer(256 << 20)
	x.finish()
	c.whole()
	if x.flow.NIC() != c.nics[0] || c.total() != 0 {
		t.Errorf("%d moves: the kernel's route leads through the first interface", c.total())
	}
	g, err := c.nics[0].Look(c.Ctx(), 0, nil, nil)
	c.Must(err)
	if n := g.Counters; n.ForeignRx < 1000 || n.ForeignRx != n.PassedIn {
		t.Errorf("%d segments arrived at the other interface, %d were passed in", n.ForeignRx, n.PassedIn)
	}
}
