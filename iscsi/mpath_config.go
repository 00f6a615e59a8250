package iscsi

import (
	"fmt"
	"time"
)

// Policy says which path a command takes, of the paths with the best access state:
// active/optimized before active/non-optimized.
type Policy uint8

const (
	RoundRobin      Policy = iota // the next path for each command
	LeastQueueDepth               // the path with the fewest commands in flight
	FailOver                      // the first path that works: one that the unit prefers (PREF), else in the order of the URLs
)

var policies = []string{RoundRobin: "round-robin", LeastQueueDepth: "queue-depth", FailOver: "failover"}

func (p Policy) String() string {
	if int(p) < len(policies) {
		return policies[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// defaultPathCheck is how often a path is asked for its access state.
const defaultPathCheck = 5 * time.Second

// PathState is the state of a path of a Disk.
type PathState uint8

const (
	PathDown    PathState = iota // there is no session
	PathPassive                  // there is a session, and the unit gives no access through it at present
	PathReady                    // commands can take this path, and take a better one
	PathActive                   // commands take this path
)

func (s PathState) String() string {
	names := [...]string{"down", "passive", "ready", "active"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("path state %d", uint8(s))
}

// Path is a way to a Disk.
type Path struct {
	Portal   string // host:port
	Target   string
	State    PathState
	Access   AccessState // of the target port group; valid unless State is PathDown
	Group    uint16      // target port group; 0: the unit has none
	InFlight int         // commands of queues and of Disk's methods that have no answer

	HeaderDigest, DataDigest bool

	Err error // why State is PathDown
}

// Paths tells the paths of the disk, in the order of the URLs. A disk of Dial has one.
func (d *Disk) Paths() []Path {
	if d.paths == nil {
		p := Path{Portal: d.s.Portal(), Target: d.s.Target(), State: PathActive, Err: d.s.Err()}
		p.HeaderDigest, p.DataDigest = d.s.Digests()
		if p.Err != nil {
			p.State = PathDown
		}
		return []Path{p}
	}
	m := d.paths
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Path
	for _, p := range m.paths {
		all = append(all, m.describe(p))
	}
	return all
}

// describe tells a path. The caller holds mu.
func (m *multipath) describe(p *unitPath) Path {
	out := Path{Portal: p.url.Portal, Target: p.url.Target, Err: p.err}
	l := p.link
	if l == nil {
		return out
	}
	out.Portal = l.session.Portal()
	out.HeaderDigest, out.DataDigest = l.session.Digests()
	out.Access, out.Group, out.InFlight = l.access, l.group, int(l.flying.Load())
	out.State = PathPassive
	if rank(l.access) < useless {
		out.State = PathReady
	}
	for _, x := range *m.choice.Load() {
		if x == l && (m.cfg.Policy != FailOver || x == (*m.choice.Load())[0]) {
			out.State = PathActive
		}
	}
	return out
}

// tell tells the program and the log of an event. p is nil for events of the disk.
func (m *multipath) tell(k EventKind, p *unitPath, err error) {
	e := Event{Kind: k, Err: err}
	if p != nil {
		e.Path = p.url.Portal
	}
	m.cfg.Log.Info("iscsi disk", "event", k.String(), "path", e.Path, "err", err)
	if m.cfg.Events != nil {
		m.telling.Lock()
		defer m.telling.Unlock()
		m.cfg.Events(e)
	}
}
