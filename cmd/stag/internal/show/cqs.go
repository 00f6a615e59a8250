package show

import (
	"cmp"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type cq struct {
	owner
	report.CQ
}

type cqList []cq

func cqs(sources []engines.Source, w want) list {
	l := cqList{}
	for _, s := range sources {
		for _, c := range s.CQs {
			if w.has(s) && w.match.numbered(c.Number) {
				l = append(l, cq{ownerOf(s), c})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y cq) int { return cmp.Or(x.order(y.owner), cmp.Compare(x.Number, y.Number)) })
	return l
}

func (l cqList) len() int { return len(l) }

// text prints CQs as `rdma resource show cq` does.
func (l cqList) text(p *page) {
	for _, c := range l {
		p.row(append(c.Columns(), c.String())...)
	}
	p.flush()
}
