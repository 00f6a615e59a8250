package nic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/rig"
)

// kernel is a network that remembers the questions it was asked. Every destination has
// one gateway, or is on the link.
type kernel struct {
	mu       sync.Mutex
	via      map[netip.Addr]netip.Addr
	lost     error // no destination has a route
	away     bool  // all routes lead through the other interface
	table    map[netip.Addr]loader.Neighbour
	asked    func(netip.Addr) // called when an entry has been read
	down     bool             // the interface has no carrier
	slow     time.Duration    // how long an answer about a route takes
	changing func()           // completes a change; Settle waits for that
	routes   int              // questions for routes
	names    int              // questions for routes with the names of interfaces
	kept     []netip.Addr
	released []netip.Addr
}

func newKernel() *kernel {
	return &kernel{via: map[netip.Addr]netip.Addr{}, table: map[netip.Addr]loader.Neighbour{}}
}

const (
	ownIndex   = 3
	otherIndex = 4
)

func (k *kernel) Next(q loader.Query) (loader.Route, error) {
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	time.Sleep(slow)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.routes++
	if k.lost != nil {
		return loader.Route{}, k.lost
	}
	r := loader.Route{OutIf: ownIndex, NextHop: q.Dst}
	if gw, ok := k.via[q.Dst]; ok {
		r.NextHop = gw
	}
	if q.Mark != 0 || k.away {
		r.OutIf = otherIndex
	}
	return r, nil
}

func (k *kernel) Route(q loader.Query) (loader.Route, error) {
	r, err := k.Next(q)
	k.names++
	r.OutName = "eth4"
	return r, err
}

func (k *kernel) Neighbour(ip netip.Addr, _ int) (loader.Neighbour, error) {
	k.mu.Lock()
	e, asked := k.table[ip], k.asked
	k.mu.Unlock()
	if asked != nil {
		asked(ip)
	}
	return e, nil
}

func (k *kernel) LinkAt(int) (loader.Link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return loader.Link{Index: ownIndex, Name: "eth3", MAC: ownMAC, MTU: 1500, Running: !k.down}, nil
}

func (k *kernel) Settle() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changing != nil {
		k.changing()
	}
	return nil
}

func (k *kernel) KeepNeighbour(ip netip.Addr, _ int) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, ip)
	e := k.table[ip]
	e.Managed = true
	k.table[ip] = e
	return true, nil
}

func (k *kernel) ReleaseNeighbour(ip netip.Addr, _ int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released = append(k.released, ip)
	e := k.table[ip]
	e.Managed = false
	k.table[ip] = e
	return nil
}

func (k *kernel) NoNeighbour(ip netip.Addr, _ int, cause error) error {
	return fmt.Errorf("%w: %v (%w)", loader.ErrNoNeighbour, ip, cause)
}

var (
	ownMAC, macA, macB = net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 0xa}, net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
	gateA, gateB       = netip.MustParseAddr("192.0.2.101"), netip.MustParseAddr("192.0.2.102")
)

// destination returns the i-th of a network beyond gateways.
func destination(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}) }

func hopsOver(k *kernel) *hops {
	link := loader.Link{Index: ownIndex, Name: "eth3", MAC: ownMAC, MTU: 1500}
	return newHops(k, link, rig.Silent(), nil)
}

func (k *kernel) learn(ip netip.Addr, mac net.HardwareAddr) { k.table[ip] = loader.Neighbour{MAC: mac} }

// news returns what the kernel reports of a neighbour that it keeps fresh.
func news(ip netip.Addr, mac net.HardwareAddr) loader.NeighbourEvent {
	return loader.NeighbourEvent{Index: ownIndex, IP: ip, MAC: mac, Managed: true}
}

// enter calls hops.enter for a flow, and ends the test if it fails.
func enter(t *testing.T, h *hops, q loader.Query) *Flow {
	t.Helper()
	f := new(Flow)
	if err := h.enter(t.Context(), f, q); err != nil {
		t.Fatal(err)
	}
	return f
}

// The kernel flushes the neighbours of an interface that loses its carrier, before it
// reports the loss. A request without a carrier is lost, and the kernel repeats it a second
// later only. Therefore hops asks when the carrier is back.
func TestNothingAskedWithoutCarrier(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	k.via[destination(1)] = gateA
	h := hopsOver(k)
	enter(t, h, loader.Query{Dst: destination(1)})
	asked := len(k.kept)
	k.down, k.table[gateA] = true, loader.Neighbour{}
	h.neighbour(t.Context(), loader.NeighbourEvent{Index: ownIndex, IP: gateA})
	if n := len(k.kept) - asked; n != 0 {
		t.Errorf("%d requests without a carrier", n)
	}
	h.carrier(t.Context(), false)
	k.down = false
	h.carrier(t.Context(), true)
	if n := len(k.kept) - asked; n != 1 {
		t.Errorf("%d requests when the carrier is back, want 1", n)
	}
}

// One question serves all flows of a way. The kernel may forget the next hop when the
// last of them has left.
func TestWayIsShared(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	k.via[destination(1)] = gateA
	h := hopsOver(k)
	var all []*Flow
	for range 400 {
		all = append(all, enter(t, h, loader.Query{Dst: destination(1)}))
	}
	if k.routes != 1 || len(k.kept) != 1 {
		t.Errorf("%d questions for a route, neighbours kept: %v; want one each", k.routes, k.kept)
	}
	for i, f := range all {
		if at := h.wayOf(f); at.NextHop != gateA || at.MAC != wire.MAC(macA) || at.Err != nil {
			t.Fatalf("%+v", at)
		}
		h.leave(f)
		h.leave(f) // and again, which does nothing
		if last := i == len(all)-1; len(k.released) != 0 != last {
			t.Fatalf("after %d flows have left, released: %v", i+1, k.released)
		}
	}
	if len(h.ways) != 0 || len(h.hops) != 0 {
		t.Errorf("%d ways and %d next hops are left", len(h.ways), len(h.hops))
	}
}

// An entry that is kept fresh for another program, or that is permanent, is not
// released.
func TestOthersNeighbourIsNotReleased(t *testing.T) {
	for name, e := range map[string]loader.Neighbour{
		"managed": {MAC: macA, Managed: true}, "fixed": {MAC: macA, Fixed: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			k.table[gateA] = e
			h := hopsOver(k)
			h.leave(enter(t, h, loader.Query{Dst: gateA}))
			if len(k.kept) != 0 || len(k.released) != 0 {
				t.Errorf("kept %v, released %v", k.kept, k.released)
			}
		})
	}
}

// Changes of routes cost one question for each way that they concern, however many
// changes come at a time. Changes that concern no way cost none.
func TestRouteChangesAreBunched(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	h := hopsOver(k)
	const ways = 3 * bunch
	for i := range ways {
		k.via[destination(i)] = gateA
		enter(t, h, loader.Query{Dst: destination(i)})
	}
	for _, c := range []struct {
		dst  string
		want int
	}{{"198.51.100.0/24", 0}, {"203.0.0.0/24", ways}, {"203.0.0.7/32", 1}, {"0.0.0.0/0", ways}} {
		k.routes = 0
		for range 100 {
			h.reroute(loader.RouteEvent{Dst: netip.MustParsePrefix(c.dst)}.Concerns)
		}
		h.reroute(loader.RouteEvent{V6: true}.Concerns)
		h.lookAgain(t.Context())
		if k.routes != c.want {
			t.Errorf("a change of %s: %d questions, want %d", c.dst, k.routes, c.want)
		}
	}
	if len(k.kept) != 1 {
		t.Errorf("kept %v", k.kept)
	}
}

// A route that changes changes the next hop, and the kernel may forget the previous
// one.
func TestRouteChanges(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	k.via[destination(1)] = gateA
	h := hopsOver(k)
	f := enter(t, h, loader.Query{Dst: destination(1)})
	k.via[destination(1)] = gateB
	h.reroute(everywhere)
	h.lookAgain(t.Context())
	if at := h.wayOf(f); at.NextHop != gateB || len(k.released) != 1 || k.released[0] != gateA {
		t.Errorf("%+v, released %v", at, k.released)
	}
	h.neighbour(t.Context(), news(gateB, macB))
	h.neighbour(t.Context(), news(gateA, macA)) // an address that no way uses
	if at := h.wayOf(f); at.MAC != wire.MAC(macB) {
		t.Errorf("%+v", at)
	}
	k.lost = loader.ErrNoRoute
	h.reroute(everywhere)
	h.lookAgain(t.Context())
	if at := h.wayOf(f); !errors.Is(at.Err, loader.ErrNoRoute) || at.NextHop != gateB || at.MAC != wire.MAC(macB) {
		t.Errorf("without a route: %+v", at)
	}
}

// News that comes while the table is read is later than the table's contents.
func TestNewsWhileAsking(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	h := hopsOver(k)
	k.asked = func(ip netip.Addr) { h.neighbour(t.Context(), news(ip, macB)) }
	if at := h.wayOf(enter(t, h, loader.Query{Dst: gateA})); at.MAC != wire.MAC(macB) {
		t.Errorf("%+v", at)
	}
}

// A take-over waits for an unknown next hop only if its own way needs that one.
func TestOnlyItsUsersWaitForAHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		k.learn(gateB, macB)
		h := hopsOver(k)
		came := make(chan error)
		go func() { came <- h.enter(t.Context(), new(Flow), loader.Query{Dst: gateA}) }()
		synctest.Wait()
		enter(t, h, loader.Query{Dst: gateB})
		h.reroute(everywhere)
		h.lookAgain(t.Context())
		h.neighbour(t.Context(), news(gateB, macA))
		select {
		case err := <-came:
			t.Fatalf("does not wait: %v", err)
		default:
		}
		h.neighbour(t.Context(), news(gateA, macA))
		if err := <-came; err != nil {
			t.Error(err)
		}
	})
}

// A next hop that does not answer ends the take-over, and no trace of it is left.
func TestHopThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		h := hopsOver(k)
		closed, end := context.WithCancelCause(t.Context())
		end(ErrClosed)
		lost, end := context.WithCancelCause(t.Context())
		end(stream.ErrPort)
		for _, c := range []struct {
			ctx  context.Context
			want error
		}{{t.Context(), loader.ErrNoNeighbour}, {closed, ErrClosed}, {lost, stream.ErrPort}} {
			if err := h.enter(c.ctx, new(Flow), loader.Query{Dst: gateA}); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
		if err := h.enter(t.Context(), new(Flow), loader.Query{Dst: gateA, Mark: 1}); !errors.Is(err, ErrOtherInterface) {
			t.Errorf("%v, want %v", err, ErrOtherInterface)
		}
		if len(h.ways) != 0 || len(h.hops) != 0 || len(k.released) != 3 {
			t.Errorf("%d ways and %d next hops are left, released %v", len(h.ways), len(h.hops), k.released)
		}
	})
}

// The kernel is asked again for an entry that is flushed, unless no way uses it.
func TestFlushedNeighbourIsKeptAgain(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	h := hopsOver(k)
	f := enter(t, h, loader.Query{Dst: gateA})
	for i, e := range []loader.NeighbourEvent{{IP: gateA}, {IP: gateA, MAC: macA}} {
		delete(k.table, gateA)
		h.neighbour(t.Context(), e)
		if len(k.kept) != i+2 {
			t.Errorf("after %+v, kept %v", e, k.kept)
		}
	}
	if at := h.wayOf(f); at.MAC != wire.MAC(macA) {
		t.Errorf("%+v: an old address is better than none", at)
	}
	h.leave(f)
	h.neighbour(t.Context(), loader.NeighbourEvent{IP: gateA})
	if len(k.kept) != 3 {
		t.Errorf("kept %v although nobody uses it", k.kept)
	}
}
