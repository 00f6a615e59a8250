package nic

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/rig"
)

// twoMembers returns the two members of a bond. The first is the active slave.
func twoMembers(k *kernel) (first, second *NIC) {
	s := &set{}
	for i, name := range []string{"eth1", "eth2"} {
		n := newNIC(s, i, Config{Log: rig.Silent()})
		n.link = loader.Link{Index: ownIndex, Name: name, Bond: "bond0", PortIndex: 50 + i, MAC: ownMAC, MTU: 1500}
		n.hops = newHops(k, n.link, n.log, n.divert)
		n.hops.several, n.hops.yields, n.hops.kin = s.several, n.yields, n.kin
		n.idle.Store(i != 0)
		s.nics = append(s.nics, n)
	}
	return s.nics[0], s.nics[1]
}

// TestActiveMember checks which member of a bond is used, and which ways must move.
func TestActiveMember(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	k.via[destination(1)] = gateA
	first, second := twoMembers(k)
	f := enter(t, first.hops, loader.Query{Dst: destination(1)})
	expect := func(when string, at *NIC, firstYields bool) {
		t.Helper()
		if got := first.At(ownIndex); got != at {
			t.Errorf("%s: the member to use is %v", when, got.link.Name)
		}
		if first.yields() != firstYields || second.yields() && at == second {
			t.Errorf("%s: yields %v and %v", when, first.yields(), second.yields())
		}
		err := first.hops.look(f.way, true)
		if e, ok := errors.AsType[*elsewhere](err); ok != firstYields || ok && (e.out != ownIndex || e.forced) {
			t.Errorf("%s: the way of a flow at the first member: %v", when, err)
		}
	}
	expect("first active", first, false)
	first.member(false)
	expect("none active", first, false)
	second.member(true)
	expect("second active", second, true)
	second.down.Store(true)
	expect("second without a carrier", first, false)
	first.member(true)
	second.down.Store(false)
	expect("both active", first, false)
	first.Bar(BarDrained)
	expect("first drained", second, false)
}

// TestMembersShareNeighbours: a member that has no flows any more does not take a
// neighbour's entry from another member.
func TestMembersShareNeighbours(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	k.via[destination(1)] = gateA
	first, second := twoMembers(k)
	a := enter(t, first.hops, loader.Query{Dst: destination(1)})
	b := enter(t, second.hops, loader.Query{Dst: destination(1)})
	first.hops.leave(a)
	if len(k.released) != 0 {
		t.Errorf("released %v while the other member uses it", k.released)
	}
	second.hops.leave(b)
	if len(k.released) != 1 {
		t.Errorf("released %v, want the neighbour once", k.released)
	}
}
