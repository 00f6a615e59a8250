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

// hops knows where the frames of an interface's flows go on the link, and where they
// come from. Flows whose packets the kernel routes alike share a way, and ways with the
// same next hop share a hop: the kernel is asked once for all of them.
//
// A flow belongs to its way from before its take-over until its last trace is gone.
// News that comes in between is stored in the way, in the hop, or in hops. Then tell
// compares the news with what the flow's engine was told.
//
// Safe for concurrent use: take-overs, the reaper, the watcher (which brings the
// news) and the surveyor (which looks routes up again) are goroutines of their
// own. Locks are taken in the order of the fields.
type hops struct {
	// Fixed.
	net      network
	index    int    // of the interface
	name     string // of the interface
	log      *slog.Logger
	diverted func([]*Flow, error) // never nil

	asking  sync.Mutex // held from a question to the kernel until its answer is stored
	telling sync.Mutex // held from a look at the present state until engines were told of it

	mu         sync.Mutex // guards what follows, with all ways and hops
	src        wire.MAC   // the interface's own address
	mtu        uint16     // the interface's
	ways       map[loader.Query]*way
	hops       map[netip.Addr]*hop
	waiting    bool          // there is no carrier: a question to the kernel is useless
	refreshing bool          // the kernel does not keep neighbours fresh by itself
	stale      chan struct{} // holds a token while ways may be stale
}

// way is the way of all packets that the kernel routes alike.
type way struct {
	query   loader.Query
	users   int                       // flows that entered and have not left
	flows   map[*Flow]*engine.Heading // flows that an engine runs, with what the engine was told
	found   bool                      // the kernel has been asked
	stale   bool                      // the kernel may answer otherwise now
	err     error                     // why the kernel's last answer is unusable
	lost    bool                      // the flows have been told of err
	hop     *hop                      // of the last usable answer; nil: there was none
	changed chan struct{}             // closed, and replaced, when hop or its address changes
}

// hop is the next hop of some ways.
type hop struct {
	ip    netip.Addr // without zone
	ways  map[*way]struct{}
	mac   wire.MAC
	known bool // mac is what the kernel would use
	news  int  // how many news of it the kernel has sent
	kept  bool // the kernel has been made to look for it
	ours  bool // the kernel keeps it fresh for us
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

// enter finds the way of the connection that f will be, and waits until the way's next
// hop is known, but no longer than until ctx ends or for loader.ResolveWait. When enter
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
	w.stale = w.stale || w.lost // flows that were told of an error must hear that the route is back
	again := w.stale
	h.mu.Unlock()
	if again {
		h.wake()
	}
	return nil
}

// await waits until w's next hop is known.
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
			// A closed or lost interface says more than a peer that has not answered.
			if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) || errors.Is(cause, stream.ErrPort) {
				return cause
			}
			return h.net.NoNeighbour(hop.ip, h.index, ctx.Err())
		}
	}
}

// leave takes f's way away from it. A way without flows is forgotten. The kernel need
// not keep a next hop fresh that no way leads to. leave may be called twice.
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

// through makes p, which may be nil, the next hop of w. It returns the previous one if
// no way leads through that any more. mu is held.
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

// change wakes every await on w, because its next hop or the address of that has
// changed. mu is held.
func (w *way) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}
