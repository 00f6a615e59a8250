package e2e

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
)

// often returns how often an interface dies in a test: few times, or 200 times with
// STAG_LONG=1.
func often(few int) int {
	if os.Getenv("STAG_LONG") == "1" {
		return 200
	}
	return few
}

// TestInterfaceDiesOften takes the second interface away under two-way fire, and gives it
// back, again and again. The connection leaves it and comes back. No octet is wrong. If the
// peer's end goes down, nothing reaches the placeholder.
func TestInterfaceDiesOften(t *testing.T) {
	t.Parallel()
	for name, side := range map[string]pair.Side{"carrier lost": theirs, "administratively down": ours} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()       // it mostly waits
			n := often(20) / 2 // times away and back
			c := newCards(t)
			c.addressesOnLoopback()
			x := c.unfinished(uint64(n+4) << 20)
			c.preferSecond(ours)
			c.preferSecond(theirs)
			c.at(x, 1)
			for i := range n {
				x.reach(uint64(i+1) << 20)
				c.ip(side, "link", "set", secondEnds[side], "down")
				c.at(x, 0)
				x.reach(uint64(i+1)<<20 + 1<<19)
				c.ip(side, "link", "set", secondEnds[side], "up")
				c.preferSecond(side)
				c.at(x, 1)
			}
			x.finish()
			if side == theirs { // a veth end that is set down gives its last packets to the kernel
				c.whole()
			}
			c.told(1+2*n, nic.CauseCarrier, nic.CauseRoute)
		})
	}
}

// told waits until n moves have been told, each with one of the causes, and demands that
// there are no more.
func (c *cards) told(n int, causes ...nic.Cause) {
	c.Helper()
	sum := func() (moves int64) {
		for _, cause := range causes {
			moves += c.moved[cause].Load()
		}
		return moves
	}
	c.Eventually("each move is told", func() bool { return sum() >= int64(n) })
	if sum() != int64(n) || c.total() != int64(n) {
		c.Errorf("%d moves for the causes %v, of %d; want %d", sum(), causes, c.total(), n)
	}
}

// secondEnds are the ends of the second cable.
var secondEnds = [2]string{"q0", "q1"}

// preferSecond gives a side a route through the second cable that is better than any other.
func (c *cards) preferSecond(side pair.Side) {
	c.Helper()
	c.ip(side, "route", "replace", c.addr(side.Other(), false)+"/32", "via", [2]string{"198.18.0.2", "198.18.0.1"}[side],
		"dev", secondEnds[side], "src", c.addr(side, false), "metric", "5")
}

// TestInterfaceDeletedOften deletes the interface of a connection under two-way fire, each
// time with interfaces of its own. The peer keeps its last octets back until the connection
// has moved.
func TestInterfaceDeletedOften(t *testing.T) {
	t.Parallel()
	for i := range often(3) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := newCards(t)
			c.addressesOnLoopback()
			x := c.unfinished(8 << 20)
			x.reach(uint64(1+i%8) << 19)
			c.deleteCable(pair.Side(i % 2))
			c.at(x, 1)
			x.finish()
			c.told(1, nic.CauseLost, nic.CauseCarrier, nic.CauseRoute)
		})
	}
}

// TestSilentDeath lets packets of the first cable vanish under two-way fire, although its
// interfaces are up, and moves the connection away as Drain does. The peer's route changes
// later, earlier or at the same time. Then the cable works again.
func TestSilentDeath(t *testing.T) {
	t.Parallel()
	n := often(10)
	c := newCards(t)
	x := c.unfinished(uint64(n+4) << 20)
	for i := range n {
		x.reach(uint64(i+1) << 20)
		heal := c.vanish()
		if i%2 == 0 {
			c.routeBy(theirs, 1)
		}
		c.nics[0].Bar(nic.BarDrained)
		c.Must(x.flow.MoveTo(c.Ctx(), c.nics[1], nic.Shift{Cause: nic.CauseDrain, Forced: true}))
		if i%2 != 0 {
			c.routeBy(theirs, 1)
		}
		x.reach(uint64(i+1)<<20 + 1<<19)
		heal()
		c.nics[0].Unbar(nic.BarDrained)
		if i%3 == 0 {
			c.Must(x.flow.MoveTo(c.Ctx(), c.nics[0], nic.Shift{}))
		}
		c.at(x, 0) // its route has not changed
		c.routeBy(theirs, 0)
	}
	x.finish()
	c.whole()
	c.told(2*n, nic.CauseDrain, nic.CauseRoute, nic.CauseAsked)
}

// vanish drops all packets of the first cable at the peer's end, until heal is called.
func (c *cards) vanish() (heal func()) {
	c.Helper()
	// The program is a new one each time, because the kernel detaches the last one late.
	drop := program(c.TB, asm.Instructions{asm.Mov.Imm(asm.R0, tcDrop), asm.Return()})
	var all []link.Link
	c.in(theirs, func() error {
		end, err := net.InterfaceByName(c.pair.Ends[theirs].Name)
		if err != nil {
			return err
		}
		for _, where := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			l, err := link.AttachTCX(link.TCXOptions{Interface: end.Index, Program: drop, Attach: where})
			if err != nil {
				return err
			}
			all = append(all, l)
		}
		return nil
	})
	return func() {
		for _, l := range all {
			c.Check(l.Close())
		}
	}
}

// TestMovedOnVLAN moves a connection between interfaces of one VLAN: by Forced, and by the
// routes of both ends.
func TestMovedOnVLAN(t *testing.T) {
	t.Parallel()
	const volume, moves = 64 << 20, 40
	c := cardsOnVLAN(t, vlan)
	x := c.unfinished(volume)
	for i := range moves {
		x.reach(uint64(i+1) * (volume / (moves + 4)))
		if i%4 < 2 {
			c.Must(x.flow.MoveTo(c.Ctx(), c.nics[(i+1)%2], nic.Shift{Forced: i%2 == 0}))
			continue
		}
		c.routeBy(ours, (i+1)%2)
		c.routeBy(theirs, (i+1)%2)
		c.at(x, (i+1)%2)
	}
	x.finish()
	c.whole()
	c.told(moves, nic.CauseRoute, nic.CauseAsked)
}
