package adapter

import (
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// regionsAtOnce is how many entries of the table are read before Close and other
// waiting callers may run.
const regionsAtOnce = 4096

// entries appends the used entries of this process to to. entries looks at no more than
// most entries, beginning with index, 1 for the first one. next is the index to continue with, or 0 at the
// end. The caller must have called Use, or hold busy.
func (a *Adapter) entries(index uint32, most int, to []report.MR) (list []report.MR, next uint32) {
	n := a.table.Stats()
	for last := n.Entries; index <= last; index++ {
		if most--; most < 0 {
			return to, index
		}
		e, ok := a.table.Entry(n.First + index)
		if !ok {
			continue
		}
		to = append(to, report.MR{
			STag: report.STag(uint32(e.STag)), Kind: e.Kind.String(), Valid: e.Valid, PD: uint32(e.PD), QP: e.QP, Start: e.Start, Length: e.Length,
			Rights: report.Rights(e.Rights.String()), Heap: !e.External, Window: e.Window.String(), Parent: e.Parent, Windows: e.Windows, OneTouch: e.OneTouch, Touched: e.Touched,
			PageSize: e.PageSize, Pages: e.Pages, Shared: e.Shared,
		})
	}
	return to, 0
}

// reportMRs lists all entries of the table. The caller must have called Use, or hold
// busy.
func (a *Adapter) reportMRs() []report.MR {
	stats := a.table.Stats()
	list, _ := a.entries(1, int(stats.Entries), make([]report.MR, 0, stats.Used))
	return list
}

// count counts the flows and regions of a report, even if the report leaves out their
// lists. Layers count their own objects.
func (a *Adapter) count(r *report.Engine) *report.Counts {
	n := &report.Counts{Flows: map[string]map[string]int{}, Diverted: map[string]int{}, QPs: map[string]int{}, MRs: map[string]int{}}
	for _, f := range r.Flows {
		if n.Flows[f.Device] == nil {
			n.Flows[f.Device] = map[string]int{}
		}
		n.Flows[f.Device][f.State]++
		if f.Diverted != "" {
			n.Diverted[f.Device]++
		}
	}
	own := a.table.Stats()
	for i := range own.Entries {
		if e, ok := a.table.Entry(own.First + i + 1); ok {
			n.MRs[e.Kind.String()]++
			if e.Kind == tpt.KindRegion {
				n.Registered += e.Length
			}
		}
	}
	return n
}

// leaveOut removes the lists that the caller of the report has not asked for.
func leaveOut(r *report.Engine, parts report.Parts) {
	if !parts.Any(report.PartDevices) {
		r.Devices = nil
	}
	if !parts.Any(report.PartPorts) {
		r.Ports = nil
	}
	if !parts.Any(report.PartFlows) {
		r.Flows = nil
	}
	if !parts.Any(report.PartQPs) {
		r.QPs = nil
	}
	if !parts.Any(report.PartCQs) {
		r.CQs = nil
	}
	if !parts.Any(report.PartSRQs) {
		r.SRQs = nil
	}
	if !parts.Any(report.PartISCSI) {
		r.ISCSI = nil
	}
	if !parts.Any(report.PartLUNs) {
		r.LUNs = nil
	}
	if !parts.Any(report.PartClients) {
		r.Clients = nil
	}
	if !parts.Any(report.PartQueues) {
		r.Queues = nil
	}
	if !parts.Any(report.PartCounters) {
		r.Counters = nil
	}
}
