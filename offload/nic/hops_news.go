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

// neighbour takes news of an address on the link in. Flows that use one which is
// not known any more, as when the link goes down, go on with what they have until
// there is another.
func (h *hops) neighbour(ctx context.Context, e loader.NeighbourEvent) {
	h.mu.Lock()
	p := h.hops[e.IP]
	if p == nil {
		h.mu.Unlock()
		return
	}
	p.news++
	p.known = false
	if e.MAC != nil {
		p.learn(wire.MAC(e.MAC))
	}
	ways := slices.Collect(maps.Keys(p.ways))
	h.mu.Unlock()
	if n := h.tell(ctx, ways); n != 0 && e.MAC != nil {
		h.log.Info("neighbour moved", "next hop", e.IP, "mac", wire.MAC(e.MAC), "flows", n)
	}
	if !e.Managed {
		h.keepAgain(p) // the entry was flushed, or somebody has used it
	}
}

// reroute has ways looked up again that a change of routes concerns.
func (h *hops) reroute(concerns func(dst netip.Addr) bool) {
	h.mu.Lock()
	any := false
	for _, w := range h.ways {
		if concerns(w.query.Dst) {
			w.stale, any = true, true
		}
	}
	h.mu.Unlock()
	if any {
		h.wake()
	}
}

// everywhere is for reroute: whatever its destination.
func everywhere(netip.Addr) bool { return true }

func (h *hops) wake() {
	select {
	case h.stale <- struct{}{}:
	default:
	}
}

// carrier holds surveys up while there is no carrier: that is no news of routes.
// When it is back everything is looked up again.
func (h *hops) carrier(ctx context.Context, running bool) {
	h.mu.Lock()
	back := running && h.waiting
	h.waiting = !running
	h.mu.Unlock()
	if back {
		h.keepAll(ctx, func(*hop) bool { return true })
		h.reroute(everywhere)
	}
}

// link takes the interface's own address and MTU in.
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

// tellAll is tell for all ways.
func (h *hops) tellAll(ctx context.Context) int {
	h.mu.Lock()
	ways := slices.Collect(maps.Values(h.ways))
	h.mu.Unlock()
	return h.tell(ctx, ways)
}

// tell gives the flows of ways the addresses that are true now, where they have
// others, and returns how many those are.
func (h *hops) tell(ctx context.Context, ways []*way) (n int) {
	h.telling.Lock()
	defer h.telling.Unlock()
	news := headings{}
	h.mu.Lock()
	for _, w := range ways {
		for f := range w.flows {
			n += news.of(h, f)
		}
	}
	h.mu.Unlock()
	h.redirect(ctx, news)
	return n
}

// headings are what engines are to be told.
type headings map[*engine.Engine][]engine.Heading

// of adds f, which an engine runs, if it was told otherwise than is true now, and
// returns 1 then. mu is held.
func (l headings) of(h *hops, f *Flow) int {
	told := f.way.flows[f]
	now := h.heading(f.way, *told)
	if now == *told {
		return 0
	}
	*told = now
	l[f.Engine()] = append(l[f.Engine()], now)
	return 1
}

// redirect tells engines. One that has stopped needs no news.
func (h *hops) redirect(ctx context.Context, news headings) {
	for e, list := range news {
		if err := e.Redirect(ctx, list); err != nil {
			h.log.Debug("engine not told of addresses", "queue", e.Queue(), "err", err)
		}
	}
}

// heading is where frames on a way go, for a flow whose frames go as told. mu is
// held.
func (h *hops) heading(w *way, told engine.Heading) engine.Heading {
	told.Src, told.MTU = h.src, h.mtu
	if w.hop != nil && w.hop.known {
		told.Dst = w.hop.mac
	}
	return told
}

// now is where a flow's first frames go: enter has found its way.
func (h *hops) now(f *Flow) engine.Heading {
	h.mu.Lock()
	defer h.mu.Unlock()
	// An address that is not known at this moment is better than none.
	return h.heading(f.way, engine.Heading{Flow: f.id, Dst: f.way.hop.mac})
}

// installed gives f, whose engine knows what told says, the news of its way from
// now on, and at once what has become known meanwhile. The other flows of its way
// are not looked at: there can be thousands, and as many take-overs.
func (h *hops) installed(ctx context.Context, f *Flow, told engine.Heading) {
	h.telling.Lock()
	defer h.telling.Unlock()
	news := headings{}
	h.mu.Lock()
	if w := f.way; w != nil { // else the flow has ended by now: a reset was among its parked segments
		w.flows[f] = &told
		news.of(h, f)
	}
	h.mu.Unlock()
	h.redirect(ctx, news)
}

// Way is how a flow's packets leave the host.
type Way struct {
	NextHop netip.Addr // the gateway or, on the link, the peer itself
	MAC     wire.MAC   // where frames go: the next hop's
	// Err is why the kernel would send them another way now, as when the route
	// leads through another interface, or is gone. The flow goes on as it did.
	Err error
}

// way is f's; the zero Way when it has none any more.
func (h *hops) wayOf(f *Flow) Way {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := f.way
	if w == nil || w.hop == nil {
		return Way{}
	}
	at := Way{NextHop: w.hop.ip, MAC: w.hop.mac, Err: w.err}
	if told := w.flows[f]; told != nil {
		at.MAC = told.Dst
	}
	return at
}
