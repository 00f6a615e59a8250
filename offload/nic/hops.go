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
// from the link. Settle may wait long for the kernel.
type network interface {
	Next(loader.Query) (loader.Route, error)
	Route(loader.Query) (loader.Route, error)
	LinkAt(ifindex int) (loader.Link, error)
	Settle() error
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
	yields   func() bool          // reports whether the flows must move to another member of the bond
	kin      func() []*hops       // the hops of the other members of the bond
	several  func() bool          // reports whether the adapter has other interfaces, to which flows can move
	nameOf   func(int) string     // returns the name of an interface of the adapter by its index, or ""

	asking  sync.Mutex // lock that is held from a request to the kernel until its answer is stored
	telling sync.Mutex // lock that is held from the reading of the present state until the engines have got it

	mu         sync.Mutex // guards the fields below, and all ways and hops
	src        wire.MAC   // Ethernet address of the interface
	mtu        uint16     // MTU of the interface
	ways       map[wayKey]*way
	hops       map[netip.Addr]*hop
	down       bool          // the link has no carrier
	refreshing bool          // the kernel does not keep neighbours fresh by itself
	stale      chan struct{} // holds a token while ways may be stale
}

// wayKey identifies a way. A forced way leads through this interface whatever the kernel
// would choose. Device of its query is this interface, and not the device of a socket.
type wayKey struct {
	loader.Query
	forced bool
}

// free returns the question of the way's flows to the kernel without the force.
func (k wayKey) free() loader.Query {
	if k.forced {
		k.Device = 0
	}
	return k.Query
}

// way is a route to the peers of one or more flows. All packets that the kernel routes
// alike have the same way.
type way struct {
	of      *hops
	query   wayKey
	users   int                       // number of flows that entered and have not left
	flows   map[*Flow]*engine.Heading // flows that an engine runs, with the Heading that the engine has
	found   bool                      // the kernel has been asked for the route
	stale   bool                      // the kernel's answer may have changed
	err     error                     // error of the kernel's last answer; nil: the answer is usable
	lost    bool                      // the flows have been notified of err
	told    int                       // interface to which the flows were last told to move; 0: none
	missed  bool                      // a flow that no engine ran at the time has missed what the others were told
	late    bool                      // the kernel may not have completed the change that made the way stale
	hop     *hop                      // next hop of the last usable answer; nil: there was none
	changed chan struct{}             // channel that is closed and replaced when hop or the address of hop changes
}

// hop is the next hop of one or more ways.
type hop struct {
	ip     netip.Addr // address of the next hop without zone
	ways   map[*way]struct{}
	mac    wire.MAC
	known  bool // mac is the Ethernet address that the kernel would use
	failed bool // the next hop does not answer the kernel
	news   int  // number of messages about this hop that the kernel has sent
	kept   bool // the kernel has been asked to resolve the hop
	ours   bool // the kernel keeps the address fresh for this NIC
}

func newHops(net network, link loader.Link, log *slog.Logger, diverted func([]*Flow, error)) *hops {
	if diverted == nil {
		diverted = func([]*Flow, error) {}
	}
	h := &hops{net: net, index: link.Index, name: link.Name, log: log, diverted: diverted, several: func() bool { return false },
		nameOf: func(int) string { return "" }, yields: func() bool { return false }, kin: func() []*hops { return nil },
		ways: map[wayKey]*way{}, hops: map[netip.Addr]*hop{}, stale: make(chan struct{}, 1)}
	h.mtu = clampMTU(link.MTU)
	copy(h.src[:], link.MAC)
	return h
}

// enter finds the way of the connection that f will be. enter waits until the way's
// next hop is known, until ctx ends, or for loader.ResolveWait at most. When enter
// returns nil, f has the way until leave.
func (h *hops) enter(ctx context.Context, f *Flow, q loader.Query) error {
	w, err := h.join(ctx, wayKey{Query: q}, loader.ResolveWait)
	if err != nil {
		return err
	}
	h.mu.Lock()
	f.way = w
	h.mu.Unlock()
	return nil
}

// join returns the way for a key, with one user more, when the next hop of the way is
// known. join waits for the next hop until ctx ends, or for the time wait at most.
func (h *hops) join(ctx context.Context, key wayKey, wait time.Duration) (*way, error) {
	w := h.use(key)
	err := h.look(w, false)
	if err == nil {
		err = h.await(ctx, w, wait)
	}
	if err != nil {
		h.part(w)
		return nil, err
	}
	yields := h.yields()
	h.mu.Lock()
	w.stale = w.stale || yields || w.lost // flows that were notified of an error must also be notified when the route is back
	again := w.stale
	h.mu.Unlock()
	if again {
		h.wake()
	}
	return w, nil
}

// joinBlind returns the way for a key, with one user more, whether or not there is a
// route. The surveyor looks for a route when routes change.
func (h *hops) joinBlind(key wayKey) *way {
	w := h.use(key)
	if h.look(w, false) != nil {
		h.mu.Lock()
		w.stale = true
		h.mu.Unlock()
		h.wake()
	}
	return w
}

// use returns the way for a key, with one user more.
func (h *hops) use(key wayKey) *way {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.ways[key]
	if w == nil {
		w = &way{of: h, query: key, flows: map[*Flow]*engine.Heading{}, changed: make(chan struct{})}
		h.ways[key] = w
	}
	w.users++
	return w
}

// await waits until the next hop of w is known, for the time wait at most.
func (h *hops) await(ctx context.Context, w *way, wait time.Duration) error {
	late := time.NewTimer(wait)
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
	h.mu.Lock()
	w := f.way
	if w != nil {
		delete(w.flows, f)
		f.way = nil
	}
	h.mu.Unlock()
	if w != nil {
		h.part(w)
	}
}

// part ends one use of a way.
func (h *hops) part(w *way) {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
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
