package nic

import (
	"fmt"
	"net/netip"

	"github.com/stag-rdma/stag/loader"
)

// The members of a bond are interfaces with one index: the bond's, to which the kernel's
// routes and neighbours refer. The connections of a bond leave through a member that the
// bond itself uses: the active slave, or a slave of the active aggregator. They move to
// another member if the bond no longer uses theirs. The peer's segments may arrive at any
// member.

// Idle reports whether the interface is a member of a bond that does not send through it.
func (n *NIC) Idle() bool { return n.idle.Load() }

// works reports whether connections may leave through the interface.
func (n *NIC) works() bool { return n.life.Err() == nil && !n.down.Load() && !n.idle.Load() }

// At returns the open interface of the adapter with this index. If the index is that of
// a bond, At returns the member to use. At returns nil if there is none.
func (n *NIC) At(index int) *NIC { return n.set.at(index) }

// at returns the open interface of the set with this index, or the member of the bond to
// use. It returns nil if there is none.
func (s *set) at(index int) (best *NIC) {
	for _, n := range s.list() {
		if n.link.Index != index || n.life.Err() != nil {
			continue
		}
		if best == nil || n.rank() > best.rank() {
			best = n
		}
	}
	return best
}

// rank orders the members of a bond: the one with the highest rank is to be used.
func (n *NIC) rank() (r int) {
	if n.works() {
		r += 2
	}
	if !n.Barred() {
		r++
	}
	return r
}

// yields reports whether the connections of a bond's member must move to another member.
func (n *NIC) yields() bool {
	if n.link.Bond == "" || n.works() {
		return false
	}
	to := n.set.at(n.link.Index)
	return to != nil && to != n && to.works()
}

// reselect makes the connections of all members of the bond look for the member to use.
func (n *NIC) reselect() {
	if n.link.Bond == "" {
		return
	}
	for _, m := range n.set.list() {
		if m.link.Index == n.link.Index {
			m.hops.askAgain()
		}
	}
}

// kin returns the hops of the other members of the bond.
func (n *NIC) kin() (list []*hops) {
	if n.link.Bond == "" {
		return nil
	}
	for _, m := range n.set.list() {
		if m != n && m.link.Index == n.link.Index {
			list = append(list, m.hops)
		}
	}
	return list
}

// bequeath leaves the kernel's entry of a next hop to another member of the bond that
// uses the next hop too. bequeath returns false if there is none.
func (h *hops) bequeath(ip netip.Addr) bool {
	for _, other := range h.kin() {
		other.mu.Lock()
		p := other.hops[ip]
		if p != nil {
			p.ours = true
		}
		other.mu.Unlock()
		if p != nil {
			return true
		}
	}
	return false
}

// present returns the state of the interface.
func (n *NIC) present() (loader.Link, error) {
	if n.link.Bond == "" {
		return n.net.LinkAt(n.link.Index)
	}
	l, err := n.net.LinkAt(n.link.PortIndex)
	if err == nil && l.Bond == "" { // it is no member any more
		l.Index, l.MAC, l.MTU = n.link.Index, n.link.MAC, n.link.MTU
	}
	return l, err
}

// member stores whether the bond sends through the interface.
func (n *NIC) member(active bool) {
	if n.link.Bond == "" || n.idle.Swap(!active) == !active {
		return
	}
	n.log.Info("bond changed", "bond", n.link.Bond, "link", n.link.Name, "active", active)
	n.reselect()
}

// yielded is the error for a way through a member that the bond does not use.
func (h *hops) yielded() error {
	return &elsewhere{h.index, false, fmt.Errorf("%w: the bond does not send through %s", ErrOtherInterface, h.name)}
}
