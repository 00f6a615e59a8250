package nic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/wire"
)

// These are limits of the pause between two surveys. With them, surveys take at most a
// tenth of a processor, even while routes change all the time, as on a host that runs
// BGP. The first of many changes causes a survey without delay. A survey of very many
// ways may take more of a processor, because a change must not wait longer than
// surveyMost.
const (
	surveyPause = 20 * time.Millisecond
	surveyShare = 9 // the pause is this many times the processor time of the survey before it
	surveyMost  = time.Second
)

// survey looks stale ways up again until ctx ends.
func (h *hops) survey(ctx context.Context) {
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.stale:
		}
		began := threadTime()
		h.lookAgain(ctx)
		h.settle()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(max(surveyPause, surveyShare*(threadTime()-began)), surveyMost)):
		}
	}
}

// threadTime returns the processor time that the calling thread has used. A survey often
// waits for the kernel, which may hold its lock for seconds while a device fails. The next
// survey must not wait longer because of that.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0 // Linux has this clock since 2.6.12
	}
	return time.Duration(t.Nano())
}

// settle makes the surveyor look ways up once more, when the kernel has completed the
// changes that made them stale: see loader.Net.Settle. The survey before may have found
// the old routes.
func (h *hops) settle() {
	h.mu.Lock()
	var late []*way
	for _, w := range h.ways {
		if w.late {
			w.late = false
			late = append(late, w)
		}
	}
	h.mu.Unlock()
	if len(late) == 0 {
		return
	}
	if err := h.net.Settle(); err != nil {
		h.log.Warn("routes looked up early", "err", err)
	}
	h.mu.Lock()
	for _, w := range late {
		w.stale = true
	}
	h.mu.Unlock()
	h.wake()
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
	if len(now.flows) == 0 {
		return
	}
	switch {
	case w.query.forced && !lost:
		h.wish(w, now.flows)
		return
	case lost && !now.before:
		h.log.Warn("route leads elsewhere", "to", w.query.Dst, "flows", len(now.flows), "err", now.err)
	case !lost && now.before:
		h.log.Info("route is back", "to", w.query.Dst, "flows", len(now.flows))
	case !lost || outOf(now.err) == now.told:
		return // no news
	}
	h.diverted(now.flows, now.err)
}

// wish reports the flows of a forced way as diverted if the kernel would send their
// packets through another interface.
func (h *hops) wish(w *way, flows []*Flow) {
	r, err := h.net.Next(w.query.free())
	if err != nil || r.OutIf == h.index {
		return
	}
	h.mu.Lock()
	before := w.told
	w.told = r.OutIf
	h.mu.Unlock()
	if before != r.OutIf {
		h.diverted(flows, &elsewhere{r.OutIf, true, ErrOtherInterface})
	}
}

// elsewhere says that a route leads through another interface.
type elsewhere struct {
	out    int  // index of that interface
	forced bool // the flows do not follow the route now, because they were told not to
	err    error
}

func (e *elsewhere) Error() string { return e.err.Error() }
func (e *elsewhere) Unwrap() error { return e.err }

// outOf returns the index of the interface through which the kernel would send instead.
// outOf returns 0 if err names none.
func outOf(err error) int {
	if e, ok := errors.AsType[*elsewhere](err); ok {
		return e.out
	}
	return 0
}

// state is the result of a survey for one way.
type state struct {
	hop    netip.Addr
	err    error
	before bool // the previous survey has notified the flows of an error
	told   int  // interface to which the previous survey has told the flows to move; 0: none
	flows  []*Flow
}

func (h *hops) state(w *way) state {
	at := h.nextHop(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := state{hop: at, err: w.err, before: w.lost, told: w.told, flows: slices.Collect(maps.Keys(w.flows))}
	w.lost = w.err != nil
	w.missed = w.missed || w.users > len(w.flows) && (w.lost || w.query.forced)
	if !w.query.forced {
		w.told = outOf(w.err)
	}
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
	if h.down && !h.several() { // requests to the kernel would be useless
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
		if err == nil && again && h.yields() {
			err = h.yielded()
		}
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
// the link is down. keep does nothing while the link has no carrier. carrier calls keep
// again when the link is back. The caller holds asking.
func (h *hops) keep(p *hop) error {
	h.mu.Lock()
	news := p.news
	p.kept = false
	h.mu.Unlock()
	e, err := h.net.Neighbour(p.ip, h.index)
	if err != nil {
		return err
	}
	if e.MAC == nil && !h.running() {
		return nil
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

// running reports whether the interface has a carrier. The kernel flushes the neighbours
// of an interface that loses its carrier, and reports the loss afterwards. A request
// without a carrier is lost. The kernel repeats it a second later, even if the carrier is
// back sooner, and its own packets wait as long.
func (h *hops) running() bool {
	l, err := h.net.LinkAt(h.index)
	return err != nil || l.Running
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
func (h *hops) route(k wayKey) (loader.Route, error) {
	q := k.Query
	r, err := h.net.Next(q)
	if err == nil && r.OutIf != h.index {
		err = h.leads(q, r.OutIf)
	}
	if errors.Is(err, loader.ErrLocal) {
		err = fmt.Errorf("%w: use the kernel port", err)
	}
	return r, err
}

// leads returns the error for a route that leads through another interface. For an interface
// of the adapter, leads does not ask for the name, because the answer would wait for the
// changes of interfaces that the kernel is making: a device that fails may take seconds.
func (h *hops) leads(q loader.Query, out int) error {
	name := h.nameOf(out)
	if name == "" {
		r, err := h.net.Route(q)
		if err != nil {
			return err
		}
		out, name = r.OutIf, r.OutName
	}
	return &elsewhere{out, false, fmt.Errorf("%w: the route to %v leads through %s, not %s", ErrOtherInterface, q.Dst, name, h.name)}
}

// release lets the kernel forget the address of an unused next hop, unless the hop is
// kept for another reason. p may be nil. The caller holds asking.
func (h *hops) release(p *hop) {
	if p == nil || !p.ours || h.bequeath(p.ip) {
		return
	}
	if err := h.net.ReleaseNeighbour(p.ip, h.index); err != nil {
		h.log.Warn("neighbour not released", "next hop", p.ip, "err", err)
	}
}
