package health

import (
	"github.com/stag-rdma/stag/offload/clock"
)

// Step makes the transitions that are due at time now, and returns them together with
// the probes to send now, and with the time of the next Step. The slices are valid
// until the next call of a method. The caller must report all answers that have arrived
// before it calls Step.
func (g *Group) Step(now clock.Instant) (changes []Transition, probes []Probe, next clock.Instant) {
	g.probes = g.probes[:0]
	if g.next.Due(now) {
		g.count()
	}
	for n := range g.ports {
		g.judge(now, n)
	}
	if g.next.Due(now) || g.next == clock.Never && g.wanted() {
		g.send(now)
	}
	changes = g.changes
	g.changes = nil
	return changes, g.probes, g.Deadline()
}

// Deadline returns when Step must be called next if there is no input before.
func (g *Group) Deadline() clock.Instant {
	d := g.next
	for i := range g.ports {
		d = clock.Sooner(d, g.ports[i].deadline(&g.cfg))
	}
	return d
}

// deadline returns when a port changes its state for another reason than a probe.
func (p *port) deadline(c *Config) (d clock.Instant) {
	switch p.state {
	case Up:
		if p.load.Waiting != clock.Never && !p.seen[signStuck] {
			d = p.load.Waiting.Add(c.Stuck + 1)
		}
		if p.many(c) && !p.seen[signRTO] {
			d = clock.Sooner(d, p.received.Add(silentReceive*c.Interval))
		}
	case Settling, Probing:
		if p.since != clock.Never {
			d = p.since.Add(c.Settle)
		}
	}
	return d
}

// judge makes the transitions of one port.
func (g *Group) judge(now clock.Instant, n int) {
	switch g.ports[n].state {
	case Probing:
		g.judgeProbing(now, n)
	case Up:
		g.judgeUp(now, n)
	case Suspect:
		g.judgeSuspect(now, n)
	case Failed:
		g.judgeFailed(now, n)
	case Settling:
		g.judgeSettling(now, n)
	}
}

// judgeProbing: a port that has had its carrier since it was opened is used at the
// first answer. If no target answers through any port, the targets are not there, and
// the port is as good as any.
func (g *Group) judgeProbing(now clock.Instant, n int) {
	p := &g.ports[n]
	switch {
	case p.lost:
		g.judgeSettling(now, n)
	case p.begun:
		g.change(now, n, Up, Answered)
	case len(g.targets) == 0, p.silent(&g.cfg, now, silentToFail) && !g.anyHeard():
		g.change(now, n, Up, Unproven)
	}
}

func (g *Group) judgeUp(now clock.Instant, n int) {
	p := &g.ports[n]
	shown := p.sign(&g.cfg, now)
	for s, is := range shown {
		if is && !p.seen[s] {
			p.seen[s] = true
			g.change(now, n, Suspect, signCauses[s])
		}
		p.seen[s] = is
	}
	if p.state == Up && p.silent(&g.cfg, now, silentToSuspect) && (p.ails(&g.cfg, now) || g.elsewhere(n) >= 0) {
		g.change(now, n, Suspect, Silent)
	}
	if p.state == Suspect {
		p.suspected = now
	}
}

// judgeSuspect: the port has failed if a target proves it. It is in order if a probe that
// was sent since then is answered. A sign that stays does not make it suspect again.
func (g *Group) judgeSuspect(now clock.Instant, n int) {
	p := &g.ports[n]
	if p.silent(&g.cfg, now, silentToFail) {
		if other := g.elsewhere(n); other >= 0 {
			tr := g.change(now, n, Failed, LocalFault)
			tr.Other, tr.Target = other, g.targets[g.proof(n, other)]
			p.lost = true
			p.restart(now)
			return
		}
	}
	switch {
	case p.heard && p.answered >= p.suspected:
		g.change(now, n, Up, Answered)
	case len(g.targets) == 0 && !p.ails(&g.cfg, now):
		g.change(now, n, Up, Unproven)
	}
}

// judgeFailed: a port that works begins to settle.
func (g *Group) judgeFailed(now clock.Instant, n int) {
	p := &g.ports[n]
	if !p.opened || !p.carrier {
		return
	}
	switch {
	case p.begun:
		g.change(now, n, Settling, Answered)
	case len(g.targets) == 0:
		p.since = now
		g.change(now, n, Settling, CarrierFound)
	}
}

// judgeSettling: the port is used again when its probes were answered for long enough.
// Silence restarts the time, but a single lost answer does not.
func (g *Group) judgeSettling(now clock.Instant, n int) {
	p := &g.ports[n]
	switch {
	case len(g.targets) == 0 && p.since == clock.Never:
		p.since = now
	case len(g.targets) > 0 && p.silent(&g.cfg, now, silentToFail):
		p.since = clock.Never
	}
	if p.since != clock.Never && now.Sub(p.since) >= g.cfg.Settle {
		p.lost = false
		g.change(now, n, Up, Settled)
	}
}
