package health

import "github.com/stag-rdma/stag/offload/clock"

// probes reports whether a port is part of a round. Ports in order are asked only while
// the group has flows. The others are asked always, because they wait for an answer.
func (p *port) probes(flows bool) bool {
	if !p.opened || !p.carrier || p.drained {
		return false
	}
	return flows || p.state != Up
}

// flows reports whether any port of the group has flows, or a port is suspected: its
// fault is proven through the others.
func (g *Group) flows() bool {
	for i := range g.ports {
		if g.ports[i].load.Flows > 0 || g.ports[i].state == Suspect {
			return true
		}
	}
	return false
}

// wanted reports whether a round would ask anything.
func (g *Group) wanted() bool {
	flows := g.flows()
	for i := range g.ports {
		if len(g.targets) > 0 && g.ports[i].probes(flows) {
			return true
		}
	}
	return false
}

// count ends the last round: a probe that has no answer by now is unanswered.
func (g *Group) count() {
	for i := range g.ports {
		if p := &g.ports[i]; p.probed && !p.heard {
			p.unheard++
		}
	}
}

// send begins a round of probes.
func (g *Group) send(now clock.Instant) {
	g.next = clock.Never
	if !g.wanted() {
		for i := range g.ports {
			g.ports[i].probed = false
		}
		return
	}
	flows := g.flows()
	g.round, g.next = now, now.Add(g.cfg.Interval)
	for i := range g.ports {
		p := &g.ports[i]
		asks := p.probes(flows)
		if asks && !p.probed {
			p.answered, p.unheard = now, 0 // the silence while nobody asked does not count
		}
		p.probed, p.heard = asks, false
		for k := range p.targets {
			p.targets[k].now = false
		}
		if !asks {
			continue
		}
		for _, t := range g.targets {
			g.probes = append(g.probes, Probe{i, t})
		}
	}
}

// elsewhere returns a port that proves a local fault of port n, or -1.
func (g *Group) elsewhere(n int) int {
	for other := range g.ports {
		if other != n && g.proof(n, other) >= 0 {
			return other
		}
	}
	return -1
}

// proof returns the number of a target that proves a local fault of port n, or -1: the
// target has answered through n before, and it has answered the last round through
// other, but not through n. A target that never answered through n may not be reachable
// from there at all.
func (g *Group) proof(n, other int) int {
	p, q := &g.ports[n], &g.ports[other]
	for i := range g.targets {
		if p.targets[i].before && !p.targets[i].now && q.targets[i].now {
			return i
		}
	}
	return -1
}

// anyHeard reports whether any port has an answer to the last round.
func (g *Group) anyHeard() bool {
	for i := range g.ports {
		if g.ports[i].heard {
			return true
		}
	}
	return false
}
