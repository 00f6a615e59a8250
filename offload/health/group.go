package health

import (
	"net/netip"
	"slices"

	"github.com/stag-rdma/stag/offload/clock"
)

// Group is the health of the ports of one group. Its methods must not be called
// concurrently. After one or more inputs, and when Deadline is due, the caller must
// call Step.
type Group struct {
	cfg     Config
	ports   []port
	targets []netip.Addr

	round   clock.Instant // when the last round of probes was sent; Never before the first
	next    clock.Instant // when the next round is due; Never if nothing is probed
	changes []Transition
	probes  []Probe
}

// New returns a group of n ports. All of them are Down until Open.
func New(c Config, n int) (*Group, error) {
	c, err := c.fill()
	if err != nil {
		return nil, err
	}
	return &Group{cfg: c, ports: make([]port, n)}, nil
}

// Add adds a port and returns its number.
func (g *Group) Add() int {
	g.ports = append(g.ports, port{})
	return len(g.ports) - 1
}

// Open says that a port's sockets are open. A port that has a carrier then is used as
// soon as a probe is answered. A port that gets its carrier later must settle first,
// and so must a port that is opened again after Gone.
func (g *Group) Open(now clock.Instant, n int, carrier bool) {
	p := &g.ports[n]
	p.opened, p.carrier, p.drained = true, carrier, false
	p.lost = p.lost || !carrier
	p.load, p.received, p.hops = Load{}, now, 0
	p.restart(now)
	if carrier {
		g.found(now, n)
	}
}

// Carrier reports whether the interface of a port is up and has a carrier.
func (g *Group) Carrier(now clock.Instant, n int, on bool) {
	p := &g.ports[n]
	if p.carrier == on {
		return
	}
	p.carrier = on
	if on {
		g.found(now, n)
		return
	}
	g.lose(now, n, CarrierLost)
}

// Flapped says that a port has lost its carrier and has got it again since the last input. A
// port that settles begins anew. The probes judge a port that is in use.
func (g *Group) Flapped(now clock.Instant, n int) {
	if p := &g.ports[n]; p.state == Settling || p.state == Probing && p.lost {
		p.restart(now)
	}
}

// Gone says that the interface of a port is deleted, or that its sockets do not work
// any more (ENETDOWN, ENXIO). The port stays Failed until Open.
func (g *Group) Gone(now clock.Instant, n int) {
	g.ports[n].opened = false
	g.lose(now, n, Gone)
}

// lose takes a port out of use that certainly does not work.
func (g *Group) lose(now clock.Instant, n int, why Cause) {
	p := &g.ports[n]
	p.lost = true
	switch p.state {
	case Up:
		g.change(now, n, Suspect, why)
		g.change(now, n, Failed, why)
	case Suspect, Settling:
		g.change(now, n, Failed, why)
	case Probing:
		g.change(now, n, Down, why)
	}
	p.restart(now)
}

// found begins to probe a port that has a carrier.
func (g *Group) found(now clock.Instant, n int) {
	p := &g.ports[n]
	if !p.opened || !p.carrier || p.drained {
		return
	}
	p.restart(now)
	if p.state == Down {
		g.change(now, n, Probing, CarrierFound)
	}
}

// Observe reports the load of a port.
func (g *Group) Observe(now clock.Instant, n int, l Load) {
	p := &g.ports[n]
	if l.Received != p.load.Received {
		p.received = now
	}
	p.load = l
}

// Neighbours reports how many next hops of a port's flows have a neighbour entry that
// has failed (NUD_FAILED).
func (g *Group) Neighbours(_ clock.Instant, n, failed int) { g.ports[n].hops = failed }

// Targets replaces the targets of the probes: the group's configured ones, or the next
// hops of its flows. The group asks the first MaxTargets of them.
func (g *Group) Targets(now clock.Instant, targets []netip.Addr) {
	targets = targets[:min(len(targets), MaxTargets)]
	if slices.Equal(targets, g.targets) {
		return
	}
	for i := range g.ports {
		g.ports[i].retarget(now, g.targets, targets)
	}
	g.targets = slices.Clone(targets)
}

// retarget keeps what the port knows of the targets that stay. The silence of a target
// that goes says nothing about the others.
func (p *port) retarget(now clock.Instant, old, targets []netip.Addr) {
	was := p.targets
	p.targets = [MaxTargets]reach{}
	kept := false
	for i, t := range targets {
		if at := slices.Index(old, t); at >= 0 {
			p.targets[i] = was[at]
			kept = kept || was[at].before
		}
	}
	if !kept {
		p.answered, p.unheard, p.probed = now, 0, false
	}
}

// Answer reports that a target has answered a probe through a port.
func (g *Group) Answer(now clock.Instant, n int, target netip.Addr) {
	p := &g.ports[n]
	i := slices.Index(g.targets, target)
	if i < 0 || !p.probed || !p.opened || !p.carrier {
		return
	}
	p.targets[i] = reach{true, true}
	p.answered, p.unheard, p.heard, p.begun = g.round, 0, true, true
	if p.since == clock.Never {
		p.since = now
	}
}

// Drain takes a port out of use for the administrator. Undrain gives it back.
func (g *Group) Drain(now clock.Instant, n int) {
	p := &g.ports[n]
	p.drained = true
	p.lost = p.lost || p.state == Suspect // the fault may still be there
	g.change(now, n, Down, Drained)
	p.restart(now)
}

// Undrain gives a drained port back.
func (g *Group) Undrain(now clock.Instant, n int) {
	g.ports[n].drained = false
	g.found(now, n)
}

// State returns the state of a port.
func (g *Group) State(n int) State { return g.ports[n].state }

// Best returns the first port that is Up, but not one that is to be avoided. ok is
// false if there is none: the flows then stay where they are.
func (g *Group) Best(avoid int) (n int, ok bool) {
	n = slices.IndexFunc(g.ports, func(p port) bool { return p.state == Up })
	if n == avoid && n >= 0 {
		rest := slices.IndexFunc(g.ports[n+1:], func(p port) bool { return p.state == Up })
		return n + 1 + rest, rest >= 0
	}
	return n, n >= 0
}

// change changes the state of a port, and returns the record of it.
func (g *Group) change(now clock.Instant, n int, to State, why Cause) *Transition {
	p := &g.ports[n]
	if p.state == to {
		return &Transition{}
	}
	g.changes = append(g.changes, Transition{Port: n, From: p.state, To: to, Cause: why, At: now, Other: -1})
	p.state = to
	if to == Up {
		p.seen = p.sign(&g.cfg, now) // these signs did not keep it from being used
	}
	return &g.changes[len(g.changes)-1]
}
