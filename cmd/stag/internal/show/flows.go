package show

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type flow struct {
	origin
	report.Flow
	LeftBy int `json:"left_by,omitempty"` // pid of the dead process that made the flow entry
}

type flowList []flow

func flows(sources []engines.Source, w want) list {
	l := flowList{}
	for _, s := range sources {
		for _, f := range s.Flows {
			if !w.of(f.Device) || !w.match.flow(f) {
				continue
			}
			row := flow{originOf(s), f, s.LeftBy(f)}
			if row.LeftBy != 0 {
				row.owner = owner{Netns: s.Netns, Space: s.Space}
			}
			l = append(l, row)
		}
	}
	slices.SortStableFunc(l, func(x, y flow) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), x.Local.Compare(y.Local), x.Remote.Compare(y.Remote), x.order(y.owner))
	})
	return l
}

func (l flowList) len() int { return len(l) }

// text prints connections as `ss -tin` does. A word of ss has the same meaning here.
func (l flowList) text(p *page) {
	if len(l) > 0 {
		p.row("Device", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Process")
	}
	for _, f := range l {
		p.row(append(f.Columns(), f.process())...)
		p.below(f.Line())
		if f.Diverted != "" {
			p.below("diverted: " + f.Diverted)
		}
	}
	p.flush()
}

func (f flow) process() string {
	switch {
	case f.LeftBy != 0:
		return report.Words(fmt.Sprintf("no engine, left by pid %d", f.LeftBy), report.Word("netns ", f.Space))
	case f.Program == nil:
		return f.String()
	}
	user := ""
	if *f.UID != os.Geteuid() {
		user = fmt.Sprint(",uid=", *f.UID)
	}
	users := fmt.Sprintf("users:((%q,pid=%d%s,adapter=%d%s))", *f.Program, *f.PID, user, *f.Adapter, report.Word(",qp=", f.QP))
	return report.Words(users, report.Word("netns:", f.Space))
}
