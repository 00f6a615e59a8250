package show

import (
	"cmp"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type port struct {
	owner
	report.Port
}

type portList []port

func ports(sources []engines.Source, w want) list {
	l := portList{}
	for _, s := range sources {
		for _, p := range s.Ports {
			if w.of(p.Device) && w.match.named(p.Device) {
				l = append(l, port{ownerOf(s), p})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y port) int { return cmp.Or(x.order(y.owner), cmp.Compare(x.Device, y.Device)) })
	return l
}

func (l portList) len() int { return len(l) }

// text prints a line for each port. The ports of one adapter follow each other.
func (l portList) text(p *page) {
	for _, x := range l {
		p.row(append(x.Columns(), x.String())...)
	}
	p.flush()
}
