package nic

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// network is the part of a *loader.Net that hops needs. No method waits for an answer
// from the link.
type network interface {
	Next(loader.Query) (loader.Route, error)
	Route(loader.Query) (loader.Route, error)
	Neighbour(ip netip.Addr, ifindex int) (loader.Neighbour, error)
	KeepNeighbour(ip netip.Addr, ifindex int) (managed bool, err error)
	ReleaseNeighbour(ip netip.Addr, ifindex int) error
	NoNeighbour(ip netip.Addr, ifindex int, cause error) error
}

// hops stores the Ethernet addresses for the frames of an interface's flows: the
// destinations and the source. Flows whose packets the kernel routes alike share a way.
// Ways with the same next hop share a hop. hops asks the kernel once for each way and for
// each hop.
//
// A flow belongs to its way from before its take-over until the flow is removed. A change
// of an address in this time is stored in the way, in the hop, or in hops. Then tell
// compares the stored addresses with those that the flow's engine has.
//
// hops is safe for concurrent use. Take-overs, the reaper, the watcher (which brings the
// changes) and the surveyor (which looks routes up again) run on goroutines of their own.
// Locks are taken in the order of the fields.
type hops struct {
	// These fields never change.
	net      network
	index    int    // index of the interface
	name     string // name of the interface
	log      *slog.Logger
	diverted func([]*Flow, error) // callback for diverted flows; never nil

	asking  sync.Mutex // lock that is held from a request to the kernel until its answer is stored
	telling sync.Mutex // lock that is held from the reading of the present state until the engines have got it

	mu         sync.Mutex // guards the fields below, and all ways and hops
	src        wire.MAC   // Ethernet address of the interface
	mtu        uint16     // MTU of the interface
	ways       map[loader.Query]*way
	hops       map[netip.Addr]*hop
	waiting    bool          // the link has no carrier, so that requests to the kernel are useless
	refreshing bool          // the kernel does not keep neighbours fresh by itself
	stale      chan struct{} // holds a token while ways may be stale
}

// way is a route to the peers of one or more flows. All packets that the kernel routes
// alike have the same way.
type way struct {
	query   loader.Query
	users   int                       // number of flows that entered and have not left
	flows   map[*Flow]*engine.Heading // flows that an engine runs, with the Heading that the engine has
	found   bool                      // the kernel has been asked for the route
	stale   bool                      // the kernel's answer may have changed
	err     error                     // error of the kernel's last answer; nil: the answer is usable
	lost    bool                      // the flows have been notified of err
	hop     *hop                      // next hop of the last usable answer; nil: there was none
	changed chan struct{}             // channel that is closed and replaced when hop or the address of hop changes
}

// hop is the next hop of one or more ways.
type hop struct {
	ip    netip.Addr // address of the next hop without zone
	ways  map[*way]struct{}
	mac   wire.MAC
	known bool // mac is the Ethernet address that the kernel would use
	news  int  // number of messages about this hop that the kernel has sent
	kept  bool // the kernel has been asked to resolve the hop
	ours  bool // the kernel keeps the address fresh for this NIC
}

func newHops(net network, link loader.Link, log *slog.Logger, diverted func([]*Flow, error)) *hops {
	if diverted == nil {
		diverted = func([]*Flow, error) {}
	}
	h := &hops{net: net, index: link.Index, name: link.Name, log: log, diverted: diverted,
		ways: map[loader.Query]*way{}, hops: map[netip.Addr]*hop{}, stale: make(chan struct{}, 1)}
	h.mtu = clampMTU(link.MTU)
	copy(h.src[:], link.MAC)
	return h
}

// enter finds the way of the connection that f will be. enter waits until the way's
// next hop is known, until ctx ends, or for loader.ResolveWait at most. When enter
// returns nil, f has the way until leave.
func (h *hops) enter(ctx context.Context, f *Flow, q loader.Query) error {
	h.mu.Lock()
	w := h.ways[q]
	if w == nil {
		w = &way{query: q, flows: map[*Flow]*engine.Heading{}, changed: make(chan struct{})}
		h.ways[q] = w
	}
	w.users++
	f.way = w
	h.mu.Unlock()
	err := h.look(w, false)
	if err == nil {
		err = h.await(ctx, w)
	}
	if err != nil {
		h.leave(f)
		return err
	}
	h.mu.Lock()
	w.stale = w.stale || w.lost // flows that were notified of an error must also be notified when the route is back
	again := w.stale
	h.mu.Unlock()
	if again {
		h.wake()
	}
	return nil
}

// await waits until the next hop of w is known.
func (h *hops) await(ctx context.Context, w *way) error {
	late := time.NewTimer(loader.ResolveWait)
	defer late.Stop()
	for {
		h.mu.Lock()
		changed, hop, err := w.changed, w.hop, w.err
		ready := hop != nil && hop.known
		h.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ready:
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return h.net.NoNeighbour(hop.ip, h.index, context.DeadlineExceeded)
		case <-ctx.Done():
			// A closed or lost interface is a better error than a peer that has not
			// answered.
			if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) || errors.Is(cause, stream.ErrPort) {
				return cause
			}
			return h.net.NoNeighbour(hop.ip, h.index, ctx.Err())
		}
	}
}

// leave removes f from its way. If f was the last flow of the way, leave forgets the way.
// If that way was the last to its next hop, leave lets the kernel forget the address of
// the next hop. A second call does nothing.
func (h *hops) leave(f *Flow) {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	w := f.way
	if w == nil {
		h.mu.Unlock()
		return
	}
	f.way = nil
	delete(w.flows, f)
	w.users--
	var last *hop
	if w.users == 0 {
		delete(h.ways, w.query)
		last = h.through(w, nil)
	}
	h.mu.Unlock()
	h.release(last)
}

// through makes p, which may be nil, the next hop of w. If no way leads through the
// previous next hop any more, through returns that hop. The caller holds mu.
func (h *hops) through(w *way, p *hop) (unused *hop) {
	before := w.hop
	if before == p {
		return nil
	}
	w.hop = p
	w.change()
	if p != nil {
		p.ways[w] = struct{}{}
	}
	if before == nil {
		return nil
	}
	delete(before.ways, w)
	if len(before.ways) != 0 {
		return nil
	}
	delete(h.hops, before.ip)
	return before
}

// change wakes every await on w, because its next hop or the address of the hop has
// changed. The caller holds mu.
func (w *way) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}
