package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/health"
	"github.com/stag-rdma/stag/offload/nic"
)

// group watches the ports of a Group. Its goroutine owns all fields but inputs, acts and
// the state of the members.
type group struct {
	a       *Adapter
	cfg     Group
	machine *health.Group
	members []*member
	inputs  chan func()    // calls for the goroutine of run
	done    chan struct{}  // channel that close closes
	acts    chan func()    // moves of addresses and connections, in order
	mover   *loader.Mover  // moves addresses; nil but for GroupBackup
	holder  int            // the member that has the addresses
	hearing sync.WaitGroup // goroutines that hear answers
}

// member is a port in its group.
type member struct {
	port     *Port
	prober   *loader.Prober
	state    atomic.Uint32 // health.State
	pulse    nic.Pulse     // the last one
	stuck    clock.Instant // since when a transmitted frame has waited for its completion; Never: none waits
	sources  []netip.Prefix
	sourced  clock.Instant    // when sources were read
	holdings *loader.Holdings // what the port had when it last worked
	held     clock.Instant    // when holdings were read
}

func (m *member) stateNow() string { return health.State(m.state.Load()).String() }

// Times after which a group reads the addresses of its ports again.
const (
	sourcesLast  = time.Second
	holdingsLast = 2 * time.Second
)

func (a *Adapter) openGroup(c Group) (g *group, err error) {
	g = &group{a: a, cfg: c, inputs: make(chan func(), 64), acts: make(chan func(), 64), done: make(chan struct{})}
	if g.machine, err = health.New(health.Config{Interval: c.Interval, Settle: c.Settle}, len(c.Ports)); err != nil {
		return nil, err
	}
	if g.cfg.Interval == 0 {
		g.cfg.Interval = 100 * time.Millisecond
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if c.Mode == GroupBackup {
		err := a.space.Do(func() (err error) {
			g.mover, err = loader.NewMover()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for n, name := range c.Ports {
		p, err := a.portNamed(name)
		if err != nil {
			return nil, err
		}
		g.members = append(g.members, &member{stuck: clock.Never})
		if err := g.attach(n, p); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// attach begins to watch a port.
func (g *group) attach(n int, p *Port) error {
	m := g.members[n]
	err := g.a.space.Do(func() (err error) {
		m.prober, err = loader.OpenProber(p.nic.Link())
		return err
	})
	if err != nil {
		return err
	}
	m.port, m.pulse, m.stuck = p, nic.Pulse{}, clock.Never
	g.machine.Open(g.now(), n, !p.nic.Down())
	prober := m.prober
	g.hearing.Go(func() {
		for a := range prober.Answers() {
			g.tell(func() { g.machine.Answer(g.now(), n, a.Target) })
		}
	})
	return nil
}

// reopen watches a port that was opened again.
func (g *group) reopen(n int, p *Port) {
	m := g.members[n]
	_ = m.prober.Close() // its interface is gone
	if err := g.attach(n, p); err != nil {
		g.a.log.Error("port not watched", "port", p.name, "err", err)
	}
}

// close ends the watch. run has ended.
func (g *group) close() error {
	close(g.done)
	var errs []error
	for _, m := range g.members {
		if m.prober != nil {
			errs = append(errs, m.prober.Close())
		}
	}
	g.hearing.Wait()
	if g.mover != nil {
		errs = append(errs, g.mover.Close())
	}
	return errors.Join(errs...)
}

func (g *group) now() clock.Instant { return clock.Now() }

// tell makes the goroutine of run call f.
func (g *group) tell(f func()) {
	select {
	case g.inputs <- f:
	case <-g.done:
	case <-g.a.life.Done():
	}
}

// run watches the ports until the adapter is closed.
func (g *group) run() {
	ctx := g.a.life
	var acting sync.WaitGroup
	acting.Go(func() {
		for {
			select {
			case act := <-g.acts:
				act()
			case <-ctx.Done():
				return
			}
		}
	})
	defer acting.Wait()
	observe := time.NewTicker(g.cfg.Interval)
	defer observe.Stop()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-g.inputs:
			f()
			for n := len(g.inputs); n > 0; n-- {
				(<-g.inputs)()
			}
		case <-observe.C:
			g.observe(ctx)
		case <-alarm.C:
		}
		g.step(alarm)
	}
}

// step lets the machine decide, and does what it decides.
func (g *group) step(alarm *time.Timer) {
	now := g.now()
	changes, probes, next := g.machine.Step(now)
	for _, p := range probes {
		g.ask(now, p)
	}
	for _, c := range changes {
		g.change(c)
	}
	if next != clock.Never {
		alarm.Reset(max(0, next.Sub(now)))
	}
}

// observe reports the load of the ports to the machine.
func (g *group) observe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Interval)
	defer cancel()
	now := g.now()
	g.target(now)
	for n, m := range g.members {
		if p, err := m.port.nic.Pulse(ctx); err == nil {
			g.beat(now, n, p)
		}
		if g.mover != nil && health.State(m.state.Load()) == health.Up && now.Sub(m.held) >= holdingsLast {
			m.held = now
			if h, err := g.mover.Holdings(m.port.nic.Link().Index); err == nil {
				m.holdings = h
			}
		}
	}
}

// target sets what is probed: the configured hosts, or the next hops of the connections.
func (g *group) target(now clock.Instant) {
	list := g.cfg.Probe
	if list == nil {
		for _, m := range g.members {
			for _, ip := range m.port.nic.NextHops() {
				if !slices.Contains(list, ip) {
					list = append(list, ip)
				}
			}
		}
		slices.SortFunc(list, netip.Addr.Compare)
	}
	g.machine.Targets(now, list)
}

// beat reports the pulse of a port to the machine.
func (g *group) beat(now clock.Instant, n int, p nic.Pulse) {
	m := g.members[n]
	switch {
	case p.Sent == p.Completed:
		m.stuck = clock.Never
	case m.stuck == clock.Never || p.Completed != m.pulse.Completed:
		m.stuck = now
	}
	m.pulse = p
	g.machine.Observe(now, n, health.Load{Flows: p.Flows, InRTO: p.InRTO, Received: p.Received, Waiting: m.stuck})
	g.machine.Neighbours(now, n, p.FailedHops)
}

// ask sends a probe. If the port is down or gone, no answer comes, which the machine
// notices.
func (g *group) ask(now clock.Instant, p health.Probe) {
	m := g.members[p.Port]
	err := m.prober.Ask(loader.Question{Target: p.Target, Source: g.source(now, m, p.Target)})
	if err != nil && !errors.Is(err, loader.ErrLinkDown) && !errors.Is(err, loader.ErrNoLink) {
		g.a.log.Debug("probe not sent", "port", m.port.name, "target", p.Target, "err", err)
	}
}

// source returns the port's address in the network of target, or the zero Addr if it has
// none.
func (g *group) source(now clock.Instant, m *member, target netip.Addr) netip.Addr {
	if m.sources == nil || now.Sub(m.sourced) >= sourcesLast {
		m.sourced, m.sources = now, g.a.prefixesOf(m.port.nic.Link().Index)
	}
	for _, p := range m.sources {
		if p.Contains(target) {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// prefixesOf returns the addresses of an interface of the adapter's namespace. It returns
// none if the interface is gone.
func (a *Adapter) prefixesOf(index int) (list []netip.Prefix) {
	list = []netip.Prefix{}
	a.space.Do(func() error {
		ifc, err := net.InterfaceByIndex(index)
		if err != nil {
			return err
		}
		addrs, err := ifc.Addrs()
		for _, addr := range addrs {
			if p, err := netip.ParsePrefix(addr.String()); err == nil {
				list = append(list, p)
			}
		}
		return err
	})
	return list
}

// change acts on a transition of a port.
func (g *group) change(t health.Transition) {
	m := g.members[t.Port]
	m.state.Store(uint32(t.To))
	g.a.log.Info("port changed", "port", m.port.name, "from", t.From.String(), "to", t.To.String(), "cause", t.Cause.String())
	switch t.To {
	case health.Up, health.Probing:
		m.port.nic.Unbar(nic.BarUnsettled)
	case health.Failed, health.Settling:
		m.port.nic.Bar(nic.BarUnsettled)
	case health.Down:
		if t.Cause != health.Drained {
			m.port.nic.Bar(nic.BarUnsettled)
		}
	}
	why := fmt.Errorf("%v", g.reason(t))
	switch {
	case t.To == health.Suspect:
		g.a.tell(Event{Type: PortSuspect, Port: m.port.name, Err: why})
	case t.To == health.Failed && t.Cause != health.Drained:
		g.a.tell(Event{Type: PortFailed, Port: m.port.name, Err: why})
		g.leave(t.Port)
	case t.To == health.Up && t.From == health.Settling:
		g.a.tell(Event{Type: PortSettled, Port: m.port.name})
		g.failBack(t.Port)
	}
}

// reason says why a port has changed.
func (g *group) reason(t health.Transition) string {
	if t.Cause == health.LocalFault {
		return fmt.Sprintf("%v: %v answers through %s, and not through %s", t.Cause, t.Target, g.cfg.Ports[t.Other], g.cfg.Ports[t.Port])
	}
	return t.Cause.String()
}

// act makes the goroutine for moves call f, after the moves before.
func (g *group) act(f func()) {
	select {
	case g.acts <- f:
	default:
		g.a.log.Error("too many moves of a group wait: this one is left out", "ports", g.cfg.Ports)
	}
}

// leave moves addresses and connections away from a port that has failed.
func (g *group) leave(n int) {
	best, ok := g.machine.Best(n)
	if !ok {
		g.a.log.Warn("no other port works: nothing moves", "port", g.cfg.Ports[n])
		return
	}
	from, to := g.members[n].port, g.members[best].port
	if g.mover != nil && g.holder == n {
		g.hold(n, best)
	}
	g.act(func() { g.a.rescue(from, to) })
}

// failBack moves the addresses back to a preferred port that has settled.
func (g *group) failBack(n int) {
	if g.mover == nil || !g.cfg.FailBack || n >= g.holder {
		return
	}
	g.hold(g.holder, n)
}

// hold moves the addresses from one member to another. If that fails, the first member keeps
// them.
func (g *group) hold(from, to int) {
	g.holder = to
	old, next, last := g.members[from].port, g.members[to].port, g.members[from].holdings
	g.act(func() {
		if !g.moveAddresses(old, next, last) {
			g.tell(func() { g.holder = from })
		}
	})
}

// moveAddresses moves the addresses and routes of a port to another one, or only says what
// it would do. It reports whether it could.
func (g *group) moveAddresses(from, to *Port, last *loader.Holdings) bool {
	a, o := g.a, loader.MoveOptions{Last: last}
	if g.cfg.DryRun {
		lines, err := g.mover.Plan(from.nic.Link(), to.nic.Link(), o)
		if err != nil {
			a.log.Warn("addresses could not be moved", "from", from.name, "to", to.name, "err", err)
		}
		for _, line := range lines {
			a.log.Info("would do", "step", line)
		}
		return err == nil
	}
	moved, err := g.mover.MoveAddresses(a.life, from.nic.Link(), to.nic.Link(), o)
	if err != nil {
		a.log.Error("addresses not moved", "from", from.name, "to", to.name, "err", err)
		return false
	}
	a.log.Info("addresses moved", "from", from.name, "to", to.name, "addresses", moved.Addresses, "routes", moved.Routes, "left", moved.Left)
	return true
}

// rescueWait limits how long a connection of a port that has failed waits for the next hop
// at the other port.
const rescueWait = 500 * time.Millisecond

// rescue moves the connections of a port that has failed to another one.
func (a *Adapter) rescue(from, to *Port) {
	var moves sync.WaitGroup
	room := make(chan struct{}, drainAtOnce)
	for _, f := range from.nic.Flows() {
		room <- struct{}{}
		moves.Go(func() {
			defer func() { <-room }()
			forced := f.Routed() != to.nic
			_ = f.MoveTo(a.life, to.nic, nic.Shift{Cause: nic.CauseFailed, Forced: forced, Blind: true, Wait: rescueWait}) // MoveTo reports and logs its error
		})
	}
	moves.Wait()
}
