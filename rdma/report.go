package rdma

import (
	"maps"
	"slices"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
)

// connection describes the QP's connection for captures.
func (qp *QP) connection() adapter.Connection {
	conn := qp.Conn()
	return adapter.Connection{
		Conn: qp.conn.Load(), Local: conn.Local, Remote: conn.Remote, Ended: qp.machine.Dead(),
		Stream: report.Stream{
			QP: qp.Number(), Initiator: conn.Initiator, Revision: conn.Revision,
			CRC: conn.CRC, SendMarkers: conn.SendMarkers, RecvMarkers: conn.RecvMarkers,
		},
	}
}

// snapshot is the verbs' part of a report.
type snapshot struct {
	adapter *Adapter
	qps     []*reportedQP // QPs of the report, sorted by number
	counted totals        // counters of closed QPs; Describe adds those of the other QPs
}

// reportedQP is a QP and its counters. Look reads the counters between two steps of the
// QP. For a dead QP, Describe reads the counters.
type reportedQP struct {
	qp    *QP
	conn  *adapter.Conn // connection of the QP; nil: the QP is not connected
	stats rdmap.Stats
}

// Snapshot implements adapter.Reporter.
func (l layer) Snapshot() adapter.Snapshot {
	all, counted := l.census()
	s := &snapshot{adapter: l.Adapter, counted: counted}
	for _, qp := range all {
		s.qps = append(s.qps, &reportedQP{qp: qp})
	}
	slices.SortFunc(s.qps, func(x, y *reportedQP) int { return int(x.qp.Number()) - int(y.qp.Number()) })
	return s
}

// Connections implements adapter.Snapshot.
func (s *snapshot) Connections() []adapter.Connection {
	list := make([]adapter.Connection, len(s.qps))
	for i, r := range s.qps {
		list[i] = r.qp.connection()
		list[i].Look = func() { r.stats = r.qp.machine.Stats() }
		r.conn = list[i].Conn
	}
	return list
}

// Describe implements adapter.Snapshot.
func (s *snapshot) Describe(r *report.Engine, parts report.Parts) {
	r.CQs = append(r.CQs, s.adapter.reportCQs()...)
	if parts.Any(report.PartSRQs) {
		r.SRQs = append(r.SRQs, s.adapter.reportSRQs()...)
	}
	for _, q := range s.qps {
		if q.qp.machine.Dead() { // no step uses a dead QP any more, so that its counters can be read here
			q.stats = q.qp.machine.Stats()
		}
		if parts.Any(report.PartQPs) {
			r.QPs = append(r.QPs, q.report())
		}
		if device := q.qp.device(); device != "" {
			s.counted.add(device, &q.stats)
		}
	}
	for _, d := range r.Devices {
		r.Counters = append(r.Counters, s.counted.counters(d.Name)...)
	}
	if r.Counts != nil {
		s.count(r)
	}
}

// count counts the QPs by state. count also counts the CQs.
func (s *snapshot) count(r *report.Engine) {
	for _, q := range s.qps {
		r.Counts.QPs[stateNames[q.qp.State()]]++
	}
	r.Counts.CQs = len(r.CQs)
	for _, c := range r.CQs {
		if c.Overrun {
			r.Counts.Overrun++
		}
	}
}

// Counters implements adapter.Snapshot.
func (s *snapshot) Counters() []report.Counter {
	return report.Fields("verbs", verbsCounters{EventsLost: s.adapter.EventsLost()})
}

// verbsCounters are the counters that belong to the application.
type verbsCounters struct {
	EventsLost uint64 // asynchronous events that the application did not read in time
}

// reportCQs returns the CQs, sorted by number.
func (a *Adapter) reportCQs() []report.CQ {
	a.mu.Lock()
	cqs := slices.Collect(maps.Keys(a.cqs))
	a.mu.Unlock()
	list := make([]report.CQ, 0, len(cqs))
	for _, c := range cqs {
		c.mu.Lock()
		users, ready := len(c.users), 0
		if !c.closed { // the memory of a closed CQ may be gone
			ready = c.queue.Len()
		}
		c.mu.Unlock()
		list = append(list, report.CQ{
			Number: c.number, Depth: c.queue.Cap(), Ready: ready, QPs: users, Overrun: c.queue.Overrun(),
		})
	}
	slices.SortFunc(list, func(x, y report.CQ) int { return int(x.Number) - int(y.Number) })
	return list
}

// reportSRQs returns the SRQs, sorted by number.
func (a *Adapter) reportSRQs() []report.SRQ {
	a.mu.Lock()
	srqs := slices.Collect(maps.Keys(a.srqs))
	a.mu.Unlock()
	list := make([]report.SRQ, 0, len(srqs))
	for _, s := range srqs {
		s.mu.Lock()
		users, posted := len(s.users), s.posted()
		s.mu.Unlock()
		list = append(list, report.SRQ{
			Number: s.number, PD: uint32(s.pd.domain), Depth: s.cfg.Depth, MaxSGE: s.cfg.MaxSGE,
			Posted: posted, Taken: s.queue.Taken(), Limit: s.Limit(), QPs: users,
		})
	}
	slices.SortFunc(list, func(x, y report.SRQ) int { return int(x.Number) - int(y.Number) })
	return list
}

// report returns the report on the QP. The QP's counters must have been read.
func (q *reportedQP) report() report.QP {
	qp, cfg, conn := q.qp, q.qp.cfg, q.qp.Conn()
	r := report.QP{
		Number: qp.Number(), State: stateNames[qp.State()], PD: uint32(qp.pd.domain), SendCQ: cfg.SendCQ.number, RecvCQ: cfg.RecvCQ.number,
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth, MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline,
		Rate: qp.Rate(), Markers: "none", Counters: report.Fields("rdmap", q.stats),
	}
	if d, ok := qp.Holding(); ok {
		r.Holding = max(1, uint64(d.Milliseconds()))
	}
	if cfg.SRQ != nil {
		r.SRQ = cfg.SRQ.number
	}
	if err := qp.Err(); err != nil {
		r.Error = err.Error()
	}
	if conn.Remote.IsValid() {
		r.Local, r.Remote = &conn.Local, &conn.Remote
		r.Initiator, r.Revision, r.CRC, r.IRD, r.ORD = conn.Initiator, conn.Revision, conn.CRC, conn.IRD, conn.ORD
		r.Markers, r.Extensions = markers(conn), extensions(conn)
	}
	if q.conn != nil {
		r.Device, r.Flow = q.conn.Device(), report.FlowID(q.conn.Flow())
	}
	return r
}

// stateNames are the names of the states in the RDMAC verbs.
var stateNames = [...]string{
	rdmap.Idle: "Idle", rdmap.RTS: "RTS", rdmap.Closing: "Closing", rdmap.Terminate: "Terminate", rdmap.Errored: "Error", rdmap.Drained: "Drained",
}

// extensions returns the names of the extensions that the two ends use.
func extensions(c Conn) (names []string) {
	if c.Extensions.Has(ExtAlignedFPDUs) {
		names = append(names, "aligned_fpdus")
	}
	if c.RFC7306 {
		names = append(names, "rfc7306")
	}
	if c.Extensions.Has(ExtImmediate) {
		names = append(names, "immediate")
	}
	if c.Extensions.Has(ExtLongFPDUs) {
		names = append(names, "long_fpdus")
	}
	return names
}

func markers(c Conn) string {
	switch {
	case c.SendMarkers && c.RecvMarkers:
		return "both"
	case c.SendMarkers:
		return "sent"
	case c.RecvMarkers:
		return "received"
	}
	return "none"
}
