package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
		p.row("stag "+m.STag, "type "+m.Kind, m.state(), fmt.Sprint("pdn ", m.PD), word("lqpn ", m.QP), fmt.Sprintf("iova %#x", m.Start),
			fmt.Sprint("mrlen ", m.Length), m.memory(), m.windows(), "access "+m.access(), m.String())
	}
	p.flush()
}

func (m mr) state() string {
	if m.Valid {
		return "state valid"
	}
	return "state invalid"
}

func (m mr) memory() string {
	if m.Heap {
		return "in heap"
	}
	return "in application"
}

// windows returns the number of windows of a region, and the region of a window.
func (m mr) windows() string {
	return words(word("windows ", m.Windows), word("region ", m.Parent))
}

// access returns the rights as one word.
func (m mr) access() string { return cmp.Or(strings.Join(m.Rights, ","), "none") }
