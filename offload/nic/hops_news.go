package nic

import (
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/wire"
)

// neighbour stores news of an address on the link. If an address becomes unknown, as
// when the link goes down, flows continue to use it until there is another.
func (h *hops) neighbour(ctx context.Context, e loader.NeighbourEvent) {
	h.mu.Lock()
	p := h.hops[e.IP]
	if p == nil {
		h.mu.Unlock()
		return
	}
	p.news++
	p.known, p.failed = false, e.Failed
	if e.MAC != nil {
		p.learn(wire.MAC(e.MAC))
	}
	ways := slices.Collect(maps.Keys(p.ways))
	h.mu.Unlock()
	if n := h.tell(ctx, ways); n != 0 && e.MAC != nil {
		h.log.Info("neighbour moved", "next hop", e.IP, "mac", wire.MAC(e.MAC), "flows", n)
	}
	if !e.Managed {
		h.keepAgain(p) // the entry was flushed, or another program has used it
	}
}

// reroute marks the ways that a change of routes concerns as stale. The surveyor looks
// them up again.
func (h *hops) reroute(concerns func(dst netip.Addr) bool) {
	h.mu.Lock()
	any := false
	for _, w := range h.ways {
		if concerns(w.query.Dst) {
			w.stale, w.late, any = true, true, true
		}
	}
	h.mu.Unlock()
	if any {
		h.wake()
	}
}

// everywhere makes reroute look up every way.
func everywhere(netip.Addr) bool { return true }

func (h *hops) wake() {
	select {
	case h.stale <- struct{}{}:
	default:
	}
}

// carrier delays surveys while the link has no carrier, because the loss of the carrier
// does not change routes. An adapter of several interfaces looks at once, because the
// kernel may ignore routes without a carrier (ignore_routes_with_linkdown). When the carrier is back, the surveyor looks all ways up
// again.
func (h *hops) carrier(ctx context.Context, running bool) {
	h.mu.Lock()
	back := running && h.down
	h.down = !running
	h.mu.Unlock()
	if back {
		h.keepAll(ctx, func(*hop) bool { return true })
	}
	if back || h.several() {
		h.reroute(everywhere)
	}
}

// askAgain makes the surveyor look every way up, and report diverted flows again.
func (h *hops) askAgain() {
	h.mu.Lock()
	for _, w := range h.ways {
		w.told = 0
	}
	h.mu.Unlock()
	h.reroute(everywhere)
}

// doubt makes the surveyor look up every way that follows the kernel's route. A way that
// was told to lead elsewhere is left alone: its flows must not go back unless routes
// change.
func (h *hops) doubt() {
	h.mu.Lock()
	any := false
	for _, w := range h.ways {
		if !w.query.forced {
			w.stale, any = true, true
		}
	}
	h.mu.Unlock()
	if any {
		h.wake()
	}
}

// link stores the Ethernet address and the MTU of the interface.
func (h *hops) link(ctx context.Context, mac []byte, mtu int) {
	h.mu.Lock()
	src := h.src
	copy(src[:], mac)
	same := src == h.src && clampMTU(mtu) == h.mtu
	h.src, h.mtu = src, clampMTU(mtu)
	h.mu.Unlock()
	if same {
		return
	}
	n := h.tellAll(ctx)
	h.log.Info("interface changed", "link", h.name, "mac", src, "mtu", mtu, "flows", n)
}

func clampMTU(mtu int) uint16 { return uint16(min(max(mtu, 0), math.MaxUint16)) }

// tellAll calls tell for all ways.
func (h *hops) tellAll(ctx context.Context) int {
	h.mu.Lock()
	ways := slices.Collect(maps.Values(h.ways))
	h.mu.Unlock()
	return h.tell(ctx, ways)
}

// tell sends the present addresses to the engines of those flows whose engine has older
// addresses. tell returns the number of these flows.
func (h *hops) tell(ctx context.Context, ways []*way) (n int) {
	h.telling.Lock()
	defer h.telling.Unlock()
	news := headings{}
	h.mu.Lock()
	for _, w := range ways {
		for f := range w.flows {
			n += news.of(h, w, f)
		}
	}
	h.mu.Unlock()
	h.redirect(ctx, news)
	return n
}

// headings holds, for each engine, the new Headings of flows that the engine runs.
type headings map[*engine.Engine][]engine.Heading

// of adds f, which an engine runs, if its heading differs from the one that the engine
// has. of returns 1 if so, else 0. The caller holds mu.
func (l headings) of(h *hops, w *way, f *Flow) int {
	told := w.flows[f]
	now := h.heading(w, *told)
	if now == *told {
		return 0
	}
	*told = now
	l[f.Engine()] = append(l[f.Engine()], now)
	return 1
}

// redirect sends the headings to the engines. An engine that has stopped needs none.
func (h *hops) redirect(ctx context.Context, news headings) {
	for e, list := range news {
		if err := e.Redirect(ctx, list); err != nil {
			h.log.Debug("engine not told of addresses", "queue", e.Queue(), "err", err)
		}
	}
}

// heading returns where frames on the way w go. told is the heading that the flow's
// engine has. The caller holds mu.
func (h *hops) heading(w *way, told engine.Heading) engine.Heading {
	told.Src, told.MTU = h.src, h.mtu
	if w.hop != nil && w.hop.known {
		told.Dst = w.hop.mac
	}
	return told
}

// now returns where the first frames of a flow go. enter must have found the flow's
// way.
func (h *hops) now(f *Flow) engine.Heading {
	h.mu.Lock()
	defer h.mu.Unlock()
	// An address that may be old is better than none.
	return h.heading(f.way, engine.Heading{Flow: f.id, Dst: f.way.hop.mac})
}

// installed records that an engine runs f. told is the heading that the engine has.
// installed sends the engine what has changed since told. From then on, tell sends the
// changes. installed does not look at the other flows of the way, because there can be
// thousands of flows and as many take-overs. If a survey has notified the flows of the way
// while no engine ran f, installed makes the surveyor notify all of them again.
func (h *hops) installed(ctx context.Context, f *Flow, told engine.Heading) {
	h.telling.Lock()
	defer h.telling.Unlock()
	news, missed := headings{}, false
	h.mu.Lock()
	if w := f.way; w != nil && w.of == h { // nil if the flow has ended, because a reset was among its parked segments
		w.flows[f] = &told
		news.of(h, w, f)
		missed = w.missed
		if missed {
			w.missed, w.lost, w.told, w.stale = false, false, 0, true
		}
	}
	h.mu.Unlock()
	if missed {
		h.wake()
	}
	h.redirect(ctx, news)
}

// Way is how a flow's packets leave the host.
type Way struct {
	NextHop netip.Addr // address of the gateway, or of a peer on the link
	MAC     wire.MAC   // Ethernet address of the next hop
	// Err says why the kernel would send the packets another way now, for example
	// because the route leads through another interface or is gone. The flow continues
	// as before.
	Err error
}

// wayOf returns the Way of f, or the zero Way if f has none here any more.
func (h *hops) wayOf(f *Flow) Way {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := f.way
	if w == nil || w.of != h {
		return Way{}
	}
	if w.hop == nil {
		return Way{Err: w.err}
	}
	at := Way{NextHop: w.hop.ip, MAC: w.hop.mac, Err: w.err}
	if told := w.flows[f]; told != nil {
		at.MAC = told.Dst
	}
	return at
}
