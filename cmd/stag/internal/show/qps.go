package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type qp struct {
	owner
	report.QP
}

type qpList []qp

func qps(sources []engines.Source, w want) list {
	l := qpList{}
	for _, s := range sources {
		for _, q := range s.QPs {
			if w.of(q.Device) && w.match.numbered(q.Number) {
				l = append(l, qp{ownerOf(s), q})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y qp) int { return cmp.Or(x.order(y.owner), cmp.Compare(x.Number, y.Number)) })
	return l
}

func (l qpList) len() int { return len(l) }

// text prints QPs as `rdma resource show qp` does, with the connection in a line below.
// With detail it also prints the counters of each QP.
func (l qpList) text(p *page) {
	for _, q := range l {
		p.row(append(q.Columns(), q.String())...)
		p.below(q.Connection())
		if q.Error != "" {
			p.below("error: " + q.Error)
		}
		if p.detail {
			p.below(q.Limits())
			p.below(pairs(q.Counters, p.all))
		}
	}
	p.flush()
}

// pairs prints counters in one line. Counters that are 0 are printed only with all.
func pairs(list []report.Counter, all bool) string {
	var b []string
	for _, c := range list {
		if c.Value != 0 || all {
			b = append(b, fmt.Sprintf("%s:%d", c.Name, c.Value))
		}
	}
	return strings.Join(b, " ")
}
