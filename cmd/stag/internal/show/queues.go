package show

import (
	"cmp"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type queue struct {
	owner
	report.Queue
}

type queueList []queue

func queues(sources []engines.Source, w want) list {
	l := queueList{}
	for _, s := range sources {
		for _, q := range s.Queues {
			if w.of(q.Device) && w.match.named(q.Device) {
				l = append(l, queue{ownerOf(s), q})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y queue) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(x.Queue.Queue, y.Queue.Queue), x.order(y.owner))
	})
	return l
}

func (l queueList) len() int { return len(l) }

// text prints a line for each queue, and below it the counters of the AF_XDP socket: first
// the counters of the engine, then the counters of the kernel (XDP_STATISTICS).
func (l queueList) text(p *page) {
	for _, q := range l {
		p.row(append(q.Columns(), q.String())...)
		for _, layer := range []string{"xsk", "xsk_kernel"} {
			if line := pairs(ofLayer(q.Counters, layer), p.all); line != "" {
				p.below(layer + ": " + line)
			}
		}
	}
	p.flush()
}

func ofLayer(list []report.Counter, layer string) (some []report.Counter) {
	for _, c := range list {
		if c.Layer == layer {
			some = append(some, c)
		}
	}
	return some
}
