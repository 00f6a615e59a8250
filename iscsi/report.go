package iscsi

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/report"
)

// reports are the iSCSI sessions and units of an adapter, for its reports and captures.
type reports struct {
	adapter *adapter.Adapter

	mu       sync.Mutex // guards the fields below and what lookouts have counted; no engine takes it
	last     uint32     // number of the newest session
	sessions map[*lookout]struct{}
	servers  map[*Server]struct{}
	counted  map[place][]report.Counter // counters of connections that have ended
	roles    map[string]bool            // roles of which there was a session
}

// place is what the sums of counters belong to.
type place struct{ device, role string }

// reportsKey is the key of reports as a layer of an adapter.
type reportsKey struct{}

// reportsOf returns the reports of an adapter.
func reportsOf(a *adapter.Adapter) *reports {
	return a.Extend(reportsKey{}, func() adapter.Reporter {
		return &reports{adapter: a, sessions: map[*lookout]struct{}{}, servers: map[*Server]struct{}{}, counted: map[place][]report.Counter{}, roles: map[string]bool{}}
	}).(*reports)
}

// add makes the reports show a session. The caller fills in the exported part before.
func (r *reports) add(x *lookout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	x.number, x.of, x.base = r.last, r, &nothing
	r.sessions[x] = struct{}{}
	r.roles[x.role] = true
}

// serve makes the reports show the units of a server, until the caller calls end.
func (r *reports) serve(s *Server) (end func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[s] = struct{}{}
	return func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.servers, s)
		return nil
	}
}

// all returns the sessions in the order of their numbers.
func (r *reports) all() []*lookout {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.sessions), func(x, y *lookout) int { return cmp.Compare(x.number, y.number) })
}

// Connections implements adapter.Reporter.
func (r *reports) Connections() (list []adapter.Connection) {
	for _, x := range r.all() {
		list = append(list, x.connection())
	}
	return list
}

// Snapshot implements adapter.Reporter.
func (r *reports) Snapshot() adapter.Snapshot {
	s := &snapshot{reports: r}
	for _, x := range r.all() {
		s.seen = append(s.seen, &sight{lookout: x, Glance: flow.Glance{Begun: make([]clock.Instant, 0, x.depth)}})
	}
	return s
}

// snapshot is the part of one report.
type snapshot struct {
	*reports
	seen []*sight
}

// sight is what a report sees of a session.
type sight struct {
	*lookout
	flow.Glance
	conn *adapter.Conn // the connection that is looked at; nil: none
	seen bool          // Look has filled in the Glance
}

// Connections implements adapter.Snapshot.
func (s *snapshot) Connections() (list []adapter.Connection) {
	for _, x := range s.seen {
		c := x.connection()
		x.conn = c.Conn
		c.Look = func() { x.seen = x.glance(x.conn, &x.Glance) }
		if between := x.steps(); between != nil { // the adapter knows the connection as a QP's
			between(c.Look)
			continue
		}
		list = append(list, c)
	}
	return list
}

// Describe implements adapter.Snapshot.
func (s *snapshot) Describe(r *report.Engine, parts report.Parts) {
	now := clock.Now()
	var rows []report.Session
	sums := s.sums(func(x *sight) { rows = append(rows, x.report(now)) })
	if parts.Any(report.PartISCSI) {
		r.ISCSI = append(r.ISCSI, rows...)
	}
	if parts.Any(report.PartLUNs) {
		r.LUNs = append(r.LUNs, s.units(rows)...)
	}
	for _, d := range r.Devices {
		for _, role := range []string{report.Initiator, report.Target} {
			for _, c := range sums[place{d.Name, role}] {
				c.Device = d.Name
				r.Counters = append(r.Counters, c)
			}
		}
	}
	if r.Counts != nil {
		s.count(r.Counts, rows)
	}
}

// sums returns the counters of all sessions so far by place, and calls each for every
// session of the report.
func (s *snapshot) sums(each func(*sight)) map[place][]report.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[place][]report.Counter{}
	for at, list := range s.counted {
		sums[at] = slices.Clone(list)
	}
	for _, x := range s.seen {
		x.settle()
		at := place{x.device, x.role}
		sums[at] = plus(sums[at], x.counters(&x.Glance), x.counters(x.base))
		each(x)
	}
	return sums
}

// plus adds now minus before to sum. A sum that is nil begins at 0.
func plus(sum, now, before []report.Counter) []report.Counter {
	if sum == nil {
		sum = slices.Clone(now)
		for i := range sum {
			sum[i].Value = 0
		}
	}
	for i := range sum {
		sum[i].Value += now[i].Value - before[i].Value
	}
	return sum
}

// count counts sessions by role and state, and commands in progress.
func (s *snapshot) count(n *report.Counts, rows []report.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for role := range s.roles {
		if n.ISCSI == nil {
			n.ISCSI, n.Commands = map[string]map[string]int{}, map[string]int{}
		}
		n.ISCSI[role], n.Commands[role] = map[string]int{"up": 0}, 0
	}
	type name struct {
		role, initiator, target, isid string
		tsih                          uint16
	}
	counted := map[name]bool{} // several rows are connections of one session
	for _, row := range rows {
		n.Commands[row.Role] += row.InProgress
		if k := (name{row.Role, row.Initiator, row.Target, row.ISID, row.TSIH}); !counted[k] {
			counted[k] = true
			n.ISCSI[row.Role][row.State]++
		}
	}
}

// Counters implements adapter.Snapshot. All counters belong to a device.
func (s *snapshot) Counters() []report.Counter { return nil }
