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

// network is what hops needs of the kernel: a *loader.Net. None of it waits for
// anybody on the link.
type network interface {
	Next(loader.Query) (loader.Route, error)
	Route(loader.Query) (loader.Route, error)
	Neighbour(ip netip.Addr, ifindex int) (loader.Neighbour, error)
	KeepNeighbour(ip netip.Addr, ifindex int) (managed bool, err error)
	ReleaseNeighbour(ip netip.Addr, ifindex int) error
	NoNeighbour(ip netip.Addr, ifindex int, cause error) error
}

// hops knows where the frames of an interface's flows go on the link, and where
// they come from. Flows whose packets the kernel routes alike share a way, and
// ways with one next hop share that: the kernel is asked once for all of them.
//
// A flow belongs to its way from before its take-over until its last trace is
// gone. News that comes at any moment between is stored in the way, the hop, or
// here; tell then compares it with what the flow's engine was told.
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
	telling sync.Mutex // held from a look at what is true until engines were told it

	mu         sync.Mutex // guards what follows, with all ways and hops
	src        wire.MAC   // the interface's own address
	mtu        uint16     // the interface's
	ways       map[loader.Query]*way
	hops       map[netip.Addr]*hop
	waiting    bool          // there is no carrier: questions make no sense
	refreshing bool          // the kernel does not keep neighbours fresh by itself
	stale      chan struct{} // holds a token while ways may be stale
}

// way is the way of all packets that the kernel routes alike.
type way struct {
	query   loader.Query
	users   int                       // flows that entered and have not left
	flows   map[*Flow]*engine.Heading // those that an engine runs, with what it was told
	found   bool                      // the kernel has been asked
	stale   bool                      // and may answer otherwise now
	err     error                     // why its last answer is of no use
	lost    bool                      // its flows have heard of that
	hop     *hop                      // of its last answer of use; nil: there was none
	changed chan struct{}             // closed, and replaced, when hop or its address is another
}

// hop is the next hop of some ways.
type hop struct {
	ip    netip.Addr // without zone
	ways  map[*way]struct{}
	mac   wire.MAC
	known bool // mac is what the kernel would use
	news  int  // how often the kernel has said something about it
	kept  bool // the kernel has been made to look for it
	ours  bool // and keeps it fresh because we want that
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

// enter finds the way of a connection that f is about to be, and waits until its
// next hop is known: until ctx ends, or for loader.ResolveWait. When it returns
// nil, f has the way until leave.
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
	w.stale = w.stale || w.lost // those who have heard otherwise must hear it
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
			// That the interface is closed, or lost, says more than that nobody has answered.
			if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) || errors.Is(cause, stream.ErrPort) {
				return cause
			}
			return h.net.NoNeighbour(hop.ip, h.index, ctx.Err())
		}
	}
}

// leave takes f's way away from it. A way without flows is forgotten, and the
// kernel need not keep a next hop fresh that no way leads to. It may be called
// twice.
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

// through makes p, which may be nil, the next hop of w, and returns the one before
// if no way leads through that any more. mu is held.
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

// change wakes those who wait for another next hop, or its address. mu is held.
func (w *way) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}
