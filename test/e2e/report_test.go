package e2e

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/rdma"
)

// TestReportOfAdopted checks the report of a loaded port. It has the directory of the pins and everything that other
// ports have. The report of another port has no directory.
func TestReportOfAdopted(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{})
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{})
	from, to := r.newVerbs(ours, a), r.newVerbs(theirs, b)
	from.receives(verbsRecs)
	to.receives(verbsRecs)
	r.meet(from, to, b, false, rdma.ConnParams{}, rdma.ConnParams{})
	from.work(to)
	got, err := a.Report(t.Context())
	r.Must(err)
	_, p := r.pinned(instance)
	if d := got.Devices[0]; d.Instance != instance || d.Program != p.ProgID || !strings.Contains(d.Path, "adopted") {
		t.Errorf("%+v, and pinned is %+v", d, p)
	}
	if len(got.Flows) != 1 || got.Flows[0].ID != report.FlowID(p.Flows[0].ID) || got.Flows[0].QP != from.qp.Number() || got.Flows[0].State != "live" {
		t.Errorf("%+v, and pinned is %+v", got.Flows, p.Flows)
	}
	got, err = b.Report(t.Context())
	r.Must(err)
	if d := got.Devices[0]; d.Instance != "" {
		t.Errorf("not loaded: %+v", d)
	}
	from.part(to)
}
