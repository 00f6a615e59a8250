package daemon

import (
	"cmp"
	"slices"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/rdma/proto"
)

// reporterKey is the key of the daemon among the layers of the adapter.
type reporterKey struct{ d *Daemon }

// report adds the clients to the reports of the adapter.
func (d *Daemon) report() {
	if device, ok := d.adapter.Device().(*adapter.Adapter); ok {
		device.Extend(reporterKey{d}, func() adapter.Reporter { return reporter{d} })
	}
}

// reporter is the daemon as a layer of the adapter. The connections are those of the verbs.
type reporter struct{ d *Daemon }

func (r reporter) Connections() []adapter.Connection { return nil }
func (r reporter) Snapshot() adapter.Snapshot        { return snapshot(r) }

type snapshot struct{ d *Daemon }

func (s snapshot) Connections() []adapter.Connection { return nil }
func (s snapshot) Counters() []report.Counter        { return nil }

func (s snapshot) Describe(r *report.Engine, parts report.Parts) {
	if !parts.Any(report.PartClients) {
		return
	}
	for _, c := range s.d.all() {
		r.Clients = append(r.Clients, c.describe())
	}
	slices.SortFunc(r.Clients, func(x, y report.Client) int { return cmp.Compare(x.Number, y.Number) })
}

var personalityNames = map[proto.Personality]string{proto.PersonalityIWARP: "iwarp", proto.PersonalityRoCE: "roce"}

func (c *client) describe() report.Client {
	used := c.account.count()
	r := report.Client{
		Number: c.number, PID: max(c.peer.pid, 0), UID: c.peer.uid, Program: c.program, Personality: personalityNames[c.style], Age: uint64(time.Since(c.since).Seconds()),
		QPs: int(used[ofQPs]), CQs: int(used[ofCQs]), SRQs: int(used[ofSRQs]), MRs: int(used[ofRegions]), MWs: int(used[ofWindows]),
		PDs: int(used[ofPDs]), IDs: int(used[ofIDs]), Rings: uint64(used[ofRings]), Mapped: uint64(used[ofMapped]),
	}
	r.Refused, r.LastWord = c.account.refusals()
	return r
}
