package rdma

import (
	"strings"
	"testing"
)

// A region of one touch serves one Write. The second Write is refused and ends the
// connection, and memory has the octets of the first (US 7,299,266, FIG. 18B).
func TestOneTouch(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		once := y.lend(LocalWrite|RemoteWrite, MROptions{OneTouch: true})
		report, err := y.a.Report(r.Ctx())
		r.Must(err)
		seen := false
		for _, mr := range report.MRs {
			seen = seen || mr.OneTouch && strings.Contains(strings.Join(mr.Columns(), " "), "one-touch")
		}
		if !seen {
			r.Error("the report has no region of one touch")
		}
		for i, text := range []string{"first", "second"} {
			x.post(SendWR{ID: uint64(i), Op: WRWrite, Inline: []byte(text), RKey: once.RKey(), Flags: Signaled})
		}
		y.done()
		if got := string(once.Bytes()[:6]); got != "first\x00" {
			r.Errorf("memory has %q", got)
		}
		if y.qp.Err() == nil {
			r.Error("the second Write was not refused")
		}
		r.Must(once.Close())
	})
}

// One touch counts Writes, so that other remote rights are refused.
func TestOneTouchRights(t *testing.T) {
	r := newLoopback(t)
	x := r.newEnd(r.a, wants{})
	for _, access := range []Access{LocalWrite, RemoteRead, LocalWrite | RemoteWrite | RemoteRead} {
		_, err := x.pd.AllocMR(100, access, MROptions{OneTouch: true})
		r.Says(err, nil, "one touch is for Writes of peers")
	}
}
