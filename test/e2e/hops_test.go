package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/octets"
)

// TestRouterFailsOverAfterRouteChange changes the route from one router to another. The flow follows. It follows again
// when the standby of the new router takes over.
func TestRouterFailsOverAfterRouteChange(t *testing.T) {
	s := newRouters(newRig(t, setup{}))
	x := s.transfer(nil)
	x.reach(1 << 20)
	s.route(farAway, s.addr[1], 0)
	s.Eventually("the second router is kept", func() bool { return s.managed(s.addr[1]) })
	x.goesOn()
	s.failOver(1)
	x.goesOn()
}

// TestFormerRouterIsLetGo checks a router that a flow has left. Its neighbour entry is no longer refreshed, and a
// change of its MAC address does not affect the flow.
func TestFormerRouterIsLetGo(t *testing.T) {
	s := newRouters(newRig(t, setup{}))
	x := s.transfer(nil)
	x.reach(1 << 20)
	s.route(farAway, s.addr[1], 0)
	s.Eventually("only the second router is kept", func() bool { return s.managed(s.addr[1]) && !s.managed(s.addr[0]) })
	x.goesOn()
	s.in(ours, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: s.pair.Ends[ours].Index, IP: s.addr[0].AsSlice(),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0xdd, 0xdd}, State: netlink.NUD_REACHABLE})
	})
	x.goesOn()
}

// TestRoutedByMarkOrDevice uses a socket that has a mark (SO_MARK) or is bound to an interface (SO_BINDTOIFINDEX). A
// rule sends its packets through another router than that of the main table, which does not exist. The engine uses the
// same router, and its successor.
func TestRoutedByMarkOrDevice(t *testing.T) {
	const table, mark = 100, 7
	for _, how := range []string{"mark", "device"} {
		t.Run(how, func(t *testing.T) {
			s := newRouters(newRig(t, setup{}))
			end := s.pair.Ends[ours]
			rule, prepare := netlink.NewRule(), marked(mark)
			rule.Table, rule.Family, rule.Priority = table, netlink.FAMILY_V4, 1000
			if how == "mark" {
				rule.Mark = mark
			} else {
				rule.OifName, prepare = end.Name, bound(end.Index)
			}
			s.in(ours, func() error { return netlink.RuleAdd(rule) })
			s.route(farAway, nobody, 0)
			s.in(ours, func() error {
				return netlink.NeighSet(&netlink.Neigh{LinkIndex: end.Index, IP: nobody.AsSlice(),
					HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0xdd, 1}, State: netlink.NUD_PERMANENT})
			})
			s.route(farAway, s.addr[1], table)
			x := s.transfer(prepare)
			x.goesOn()
			s.route(farAway, s.addr[0], table)
			s.Eventually("the first router is kept", func() bool { return s.managed(s.addr[0]) })
			x.goesOn()
			s.failOver(0)
			x.goesOn()
		})
	}
}

// TestNeighbourMovesInTakeOver changes the MAC address of the next hop at each step of a take-over.
func TestNeighbourMovesInTakeOver(t *testing.T) {
	for step := handoff.StepCheck; step <= handoff.StepInstall; step++ {
		t.Run(step.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			our, peer := r.connect(way{})
			const volume = 8 << 20
			far := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}).start()
			ulp := octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs})
			f, err := r.nic.Take(r.Ctx(), our, ulp, injecting(hookAt(step, func() error {
				r.moveMAC(theirs, true)
				time.Sleep(50 * time.Millisecond) // the change has been reported by then
				return nil
			})))
			r.Must(err)
			running{rig: r, volume: volume, peer: far, ulp: ulp, flow: f}.finish()
		})
	}
}

// manyIdle is so many flows that one second for each would be longer than any wait of a test.
const manyIdle = 80

// TestDeadRouterDelaysNobody has many flows with a dead router, and changes the routes. Another router, which one flow
// uses, fails over without delay.
func TestDeadRouterDelaysNobody(t *testing.T) {
	s := newRouters(newRig(t, setup{}))
	for range manyIdle {
		s.idle()
	}
	s.route(s.pair.Ends[theirs].V4.Addr(), s.addr[1], 0)
	x := s.rig.transfer(1 << 40)
	x.reach(1 << 20)
	s.breakDown(0)
	s.routesChange()
	s.failOver(1)
	x.goesOn()
}

// routesChange changes routes that no flow uses. All routes are then read again.
func (s *routers) routesChange() {
	s.Helper()
	s.in(ours, func() error {
		rule := netlink.NewRule()
		rule.Mark, rule.Table, rule.Family = 4711, 4711, netlink.FAMILY_V4
		return netlink.RuleAdd(rule)
	})
	s.route(farAway, s.addr[0], 4711)
}

// TestCloseWithDeadRouter checks that Close does not wait for a dead router.
func TestCloseWithDeadRouter(t *testing.T) {
	s := newRouters(newRig(t, setup{}))
	for range manyIdle {
		s.idle()
	}
	s.breakDown(0)
	s.routesChange()
	closed := make(chan struct{})
	n := s.nic
	s.nic = nil
	go func() {
		defer close(closed)
		s.Check(n.Close())
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("Close still waits after 30 s")
		<-closed
	}
}

// TestNeighbourIsReleased checks that the neighbour entry of a next hop is refreshed only while a flow uses it. If
// another program makes the kernel refresh an entry, the kernel goes on refreshing it.
func TestNeighbourIsReleased(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(map[bool]string{false: "ours", true: "kept before"}[before], func(t *testing.T) {
			r := newRig(t, setup{})
			hop := r.pair.Ends[theirs].V4.Addr()
			if before {
				r.in(ours, func() error {
					return netlink.NeighSet(&netlink.Neigh{LinkIndex: r.pair.Ends[ours].Index, IP: hop.AsSlice(), FlagsExt: netlink.NTF_EXT_MANAGED})
				})
			}
			for range 2 {
				r.oneShort(func() {
					if !r.managed(hop) {
						t.Error("not kept while a flow uses it")
					}
				})
				if r.managed(hop) != before {
					t.Errorf("kept after the flow: %v", !before)
				}
			}
			our, _ := r.connect(way{})
			r.take(our, octets.NewEcho())
			r.Must(r.nic.Close())
			r.nic = nil
			if r.managed(hop) != before {
				t.Errorf("kept after Close: %v", !before)
			}
		})
	}
}

// oneShort makes a connection that the peer closes, and calls during while it is open. Nothing of the flow is left.
func (r *rig) oneShort(during func()) {
	r.Helper()
	our, peer := r.connect(way{})
	f := r.take(our, octets.NewEcho())
	r.pingPong(peer)
	during()
	r.Must(peer.Close())
	r.Wait(f.Done(), "the end of the flow")
	r.clean()
}

// TestNeighbourIsReleasedWhenRefused checks that the kernel refreshes no neighbour entry after a refused take-over.
func TestNeighbourIsReleasedWhenRefused(t *testing.T) {
	r := newRig(t, setup{})
	hop := r.pair.Ends[theirs].V4.Addr()
	for _, step := range []handoff.Step{handoff.StepCheck, handoff.StepRead, handoff.StepInstall} {
		our, _ := r.connect(way{})
		if _, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), injecting(failAt(step))); err == nil {
			t.Fatal("taken over")
		}
		if r.managed(hop) {
			t.Errorf("%v: still kept", step)
		}
	}
}
