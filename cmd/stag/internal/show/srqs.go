package show

import (
	"cmp"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type srq struct {
	owner
	report.SRQ
}

type srqList []srq

func srqs(sources []engines.Source, w want) list {
	l := srqList{}
	for _, s := range sources {
		for _, c := range s.SRQs {
			if w.has(s) && w.match.numbered(c.Number) {
				l = append(l, srq{ownerOf(s), c})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y srq) int { return cmp.Or(x.order(y.owner), cmp.Compare(x.Number, y.Number)) })
	return l
}

func (l srqList) len() int { return len(l) }

// text prints SRQs as `rdma resource show srq` does.
func (l srqList) text(p *page) {
	for _, c := range l {
		p.row(append(c.Columns(), c.String())...)
	}
	p.flush()
}
