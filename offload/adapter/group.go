package adapter

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/loader"
)

// GroupMode says who moves the addresses of a port that has failed to another port.
type GroupMode uint8

const (
	// GroupFollow leaves addresses and routes to somebody else: keepalived, a routing
	// daemon, a network manager or an operator. The connections follow the routes.
	GroupFollow GroupMode = iota
	// GroupBackup moves the addresses and routes of a port that has failed to the next
	// port, and announces the addresses there.
	GroupBackup
)

// String returns the name of the mode.
func (m GroupMode) String() string { return [...]string{"follow", "backup"}[m] }

// Group is a set of ports that are watched together. If a port of the group fails, its
// connections go on over another one. A port in no group is not watched; its connections
// still follow their routes.
type Group struct {
	Ports []string // names of two ports or more; the first is preferred
	Mode  GroupMode

	// Probe lists the hosts that are asked, by ARP or Neighbour Solicitation, whether
	// the ports work: 4 at most. They must be on the links of the ports. nil: the next
	// hops of the connections.
	Probe []netip.Addr

	Interval time.Duration // time between two rounds of probes; 0 means 100 ms
	Settle   time.Duration // how long a port that has failed must have worked before it is used again; 0 means 10 s

	FailBack bool // GroupBackup: the addresses return to a preferred port that has settled
	DryRun   bool // GroupBackup: log what would be done to addresses and routes, and do not do it
}

// mostProbes limits Group.Probe.
const mostProbes = 4

// groupMistakes checks the groups of c.
func (c Config) groupMistakes() (errs []error) {
	seen := map[string]bool{}
	for i, g := range c.Groups {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("group %d: "+format, append([]any{i}, args...)...))
		}
		if len(g.Ports) < 2 {
			bad("%d ports: name two or more", len(g.Ports))
		}
		for _, name := range g.Ports {
			if !slices.Contains(c.Ports, name) {
				bad("%s is not one of the adapter's ports", name)
			}
			if seen[name] {
				bad("%s is in a group already", name)
			}
			seen[name] = true
		}
		if g.Mode > GroupBackup {
			bad("a Mode of %d: choose GroupFollow or GroupBackup", g.Mode)
		}
		if g.Settle < 0 || g.Interval < 0 {
			bad("a Settle of %v and an Interval of %v: choose 0 or more", g.Settle, g.Interval)
		}
		if g.Mode != GroupBackup && (g.FailBack || g.DryRun) {
			bad("FailBack and DryRun are for GroupBackup")
		}
		if len(g.Probe) > mostProbes {
			bad("%d hosts to probe: name %d at most", len(g.Probe), mostProbes)
		}
		for _, ip := range g.Probe {
			if !ip.IsValid() || ip.IsMulticast() || ip.IsUnspecified() || ip.IsLoopback() {
				bad("cannot probe %v: give the address of a host on the link", ip)
			}
		}
	}
	return errs
}

// groups are the groups of an adapter. The zero value has none.
type groups struct {
	list atomic.Pointer[[]*group] // Open sets it once, when the ports may already report
}

// all returns the groups.
func (gs *groups) all() []*group {
	if list := gs.list.Load(); list != nil {
		return *list
	}
	return nil
}

// repairMoves completes moves of addresses that a process has begun and not ended, because
// it was killed.
func (a *Adapter) repairMoves() error {
	return a.space.Do(func() error {
		done, err := loader.RepairMoves()
		for _, line := range done {
			a.log.Info("interrupted move of addresses completed", "step", line)
		}
		return err
	})
}

// openGroups prepares the groups. watchGroups begins to watch them.
func (a *Adapter) openGroups() error {
	var list []*group
	for _, c := range a.cfg.Groups {
		g, err := a.openGroup(c)
		if err != nil {
			return fmt.Errorf("watch the ports %v: %w", c.Ports, err)
		}
		a.undo.Add(g.close)
		list = append(list, g)
	}
	a.groups.list.Store(&list)
	return nil
}

// watchGroups watches the groups until Close.
func (a *Adapter) watchGroups() {
	for _, g := range a.groups.all() {
		a.running.Go(g.run)
	}
}

// drain tells the group of p that p is drained, or no longer.
func (gs *groups) drain(p *Port, on bool) {
	gs.tell(p.name, func(g *group, n int) {
		if on {
			g.machine.Drain(g.now(), n)
		} else {
			g.machine.Undrain(g.now(), n)
		}
	})
}

// carrier tells the group of a port that the port has lost its carrier, or has it again.
func (gs *groups) carrier(port string, up bool) {
	gs.tell(port, func(g *group, n int) { g.machine.Carrier(g.now(), n, up) })
}

// flapped tells the group of a port that the port has lost its carrier for a short time.
func (gs *groups) flapped(port string) {
	gs.tell(port, func(g *group, n int) { g.machine.Flapped(g.now(), n) })
}

// gone tells the group of a port that the port is lost.
func (gs *groups) gone(port string) {
	gs.tell(port, func(g *group, n int) { g.machine.Gone(g.now(), n) })
}

// opened tells the group of a port that the port is open again.
func (gs *groups) opened(p *Port) {
	gs.tell(p.name, func(g *group, n int) { g.reopen(n, p) })
}

// tell makes the goroutine of a port's group call do, if the port is in a group.
func (gs *groups) tell(port string, do func(g *group, n int)) {
	for _, g := range gs.all() {
		if n := slices.Index(g.cfg.Ports, port); n >= 0 {
			g.tell(func() { do(g, n) })
		}
	}
}

// state returns the state of a port in its group. in is false if the port is in no group.
func (gs *groups) state(port string) (state string, in bool) {
	for _, g := range gs.all() {
		if n := slices.Index(g.cfg.Ports, port); n >= 0 {
			return g.members[n].stateNow(), true
		}
	}
	return "", false
}
