package nic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/wire"
)

// These are limits of the pause between two surveys. With them, surveys take at most a
// tenth of a processor, even while routes change all the time, as on a host that runs
// BGP. The first of many changes causes a survey without delay.
const (
	surveyPause = 20 * time.Millisecond
	surveyShare = 9 // the pause is this many times as long as the survey before it
)

// survey looks stale ways up again until ctx ends.
func (h *hops) survey(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.stale:
		}
		began := time.Now()
		h.lookAgain(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(surveyPause, surveyShare*time.Since(began))):
		}
	}
}

// bunch is how many ways are looked up before the engines are notified.
const bunch = 64

func (h *hops) lookAgain(ctx context.Context) {
	for ctx.Err() == nil {
		list := h.takeStale()
		if len(list) == 0 {
			return
		}
		for _, w := range list {
			h.lookAt(w)
		}
		h.tell(ctx, list)
	}
}

// lookAt looks a way up again. lookAt logs changes and reports diverted flows.
func (h *hops) lookAt(w *way) {
	before := h.nextHop(w)
	err := h.look(w, true)
	now := h.state(w)
	lost := now.err != nil
	switch {
	case !lost && err != nil:
		h.log.Warn("neighbour not kept", "next hop", now.hop, "err", err)
	case !lost && before != now.hop:
		h.log.Info("next hop changed", "to", w.query.Dst, "next hop", now.hop, "before", before, "flows", len(now.flows))
	}
	if lost == now.before || len(now.flows) == 0 {
		return
	}
	if lost {
		h.log.Warn("route leads elsewhere", "to", w.query.Dst, "flows", len(now.flows), "err", now.err)
	} else {
		h.log.Info("route is back", "to", w.query.Dst, "flows", len(now.flows))
	}
	h.diverted(now.flows, now.err)
}

// state is the result of a survey for one way.
type state struct {
	hop    netip.Addr
	err    error
	before bool // the previous survey has notified the flows of an error
	flows  []*Flow
}

func (h *hops) state(w *way) state {
	at := h.nextHop(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := state{hop: at, err: w.err, before: w.lost, flows: slices.Collect(maps.Keys(w.flows))}
	w.lost = w.err != nil
	return s
}

// nextHop returns the address of the next hop of w. nextHop returns the zero Addr if w
// never had a next hop.
func (h *hops) nextHop(w *way) netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.hop == nil {
		return netip.Addr{}
	}
	return w.hop.ip
}

// takeStale returns some of the ways that are stale.
func (h *hops) takeStale() (list []*way) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting {
		return nil
	}
	for _, w := range h.ways {
		if w.stale && len(list) < bunch {
			w.stale = false
			list = append(list, w)
		}
	}
	return list
}

// look asks the kernel for the route of w and makes the kernel resolve the next hop. If
// again is false and the kernel's last answer was usable, look does not ask for the
// route again.
func (h *hops) look(w *way, again bool) error {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	gone := h.ways[w.query] != w
	ask := again || !w.found || w.err != nil
	h.mu.Unlock()
	if gone {
		return nil
	}
	if ask {
		r, err := h.route(w.query)
		h.release(h.answer(w, r, err))
		if err != nil {
			return err
		}
	}
	h.mu.Lock()
	p := w.hop
	kept := p.kept && p.known
	h.mu.Unlock()
	if kept {
		return nil
	}
	return h.keep(p)
}

// answer stores the kernel's answer for a way. answer returns a next hop that the
// kernel may forget. A way that is lost, or leads elsewhere, keeps its next hop. The
// caller holds asking.
func (h *hops) answer(w *way, r loader.Route, err error) (unused *hop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.found, w.err = true, err
	if err != nil {
		w.change() // wake each await for the next hop, because its result has changed
		return nil
	}
	ip := r.NextHop.WithZone("")
	p := h.hops[ip]
	if p == nil {
		p = &hop{ip: ip, ways: map[*way]struct{}{}}
		h.hops[ip] = p
	}
	return h.through(w, p)
}

// keep makes the kernel resolve a next hop and keep its address fresh. If that fails,
// the link is down. carrier calls keep again when the link is back. The caller holds
// asking.
func (h *hops) keep(p *hop) error {
	h.mu.Lock()
	news := p.news
	p.kept = false
	h.mu.Unlock()
	e, err := h.net.Neighbour(p.ip, h.index)
	if err != nil {
		return err
	}
	managed := e.Fixed || e.Managed
	if !e.Fixed && (!e.Managed || e.MAC == nil) {
		// An entry that is managed and does not answer also needs this call, because
		// the call makes the kernel send a request at once.
		if managed, err = h.net.KeepNeighbour(p.ip, h.index); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.kept = true
	p.ours = p.ours || managed && !e.Fixed && !e.Managed
	h.refreshing = h.refreshing || !managed
	if p.news == news && e.MAC != nil { // if the numbers differ, p has news that is newer than e
		p.learn(wire.MAC(e.MAC))
	}
	return nil
}

// learn stores the Ethernet address of a next hop. The caller holds mu.
func (p *hop) learn(mac wire.MAC) {
	p.mac, p.known = mac, true
	for w := range p.ways {
		w.change()
	}
}

// keepAgain is keep for a next hop that may no longer be in use.
func (h *hops) keepAgain(p *hop) {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	used := h.hops[p.ip] == p
	h.mu.Unlock()
	if !used {
		return
	}
	if err := h.keep(p); err != nil {
		h.log.Warn("neighbour not kept", "next hop", p.ip, "err", err)
	}
}

// keepAll calls keepAgain for some of the next hops: those for which the given function
// returns true. Then keepAll notifies the engines of the changes.
func (h *hops) keepAll(ctx context.Context, which func(*hop) bool) {
	h.mu.Lock()
	list := slices.Collect(maps.Values(h.hops))
	list = slices.DeleteFunc(list, func(p *hop) bool { return !which(p) })
	h.mu.Unlock()
	for _, p := range list {
		h.keepAgain(p)
	}
	h.tellAll(ctx)
}

// refresh repeats keep if the kernel does not manage neighbour entries.
func (h *hops) refresh(ctx context.Context) {
	h.mu.Lock()
	needed := h.refreshing
	h.mu.Unlock()
	if needed {
		h.keepAll(ctx, func(p *hop) bool { return !p.ours })
	}
}

// route asks the kernel for a route. route returns an error for a route through another
// interface or to this host.
func (h *hops) route(q loader.Query) (loader.Route, error) {
	r, err := h.net.Next(q)
	if err == nil && r.OutIf != h.index {
		if r, err = h.net.Route(q); err == nil {
			err = fmt.Errorf("%w: the route to %v leads through %s, not %s", ErrOtherInterface, q.Dst, r.OutName, h.name)
		}
	}
	if errors.Is(err, loader.ErrLocal) {
		err = fmt.Errorf("%w: use the kernel port", err)
	}
	return r, err
}

// release lets the kernel forget the address of an unused next hop, unless the hop is
// kept for another reason. p may be nil. The caller holds asking.
func (h *hops) release(p *hop) {
	if p == nil || !p.ours {
		return
	}
	if err := h.net.ReleaseNeighbour(p.ip, h.index); err != nil {
		h.log.Warn("neighbour not released", "next hop", p.ip, "err", err)
	}
}
