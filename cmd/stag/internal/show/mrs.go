package show

import (
	"cmp"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type mr struct {
	origin
	report.MR
}

type mrList []mr

func mrs(sources []engines.Source, w want) list {
	l := mrList{}
	for _, s := range sources {
		for _, m := range s.MRs {
			if w.has(s) && (w.match.stag == "" || m.STag == w.match.stag) {
				l = append(l, mr{originOf(s), m})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y mr) int {
		return cmp.Or(x.order(y.owner), cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.STag, y.STag))
	})
	return l
}

func (l mrList) len() int { return len(l) }

// text prints regions as `rdma resource show mr` does.
func (l mrList) text(p *page) {
	for _, m := range l {
		p.row(append(m.Columns(), m.String())...)
	}
	p.flush()
}
