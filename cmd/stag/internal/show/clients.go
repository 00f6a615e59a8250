package show

import (
	"cmp"
	"slices"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type client struct {
	owner
	report.Client
}

type clientList []client

func clients(sources []engines.Source, w want) list {
	l := clientList{}
	for _, s := range sources {
		for _, c := range s.Clients {
			if w.has(s) && w.match.client(c) {
				l = append(l, client{ownerOf(s), c})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y client) int { return cmp.Or(x.order(y.owner), cmp.Compare(x.Number, y.Number)) })
	return l
}

func (l clientList) len() int { return len(l) }

// text prints a row for each client. Quotas that it has met are below.
func (l clientList) text(p *page) {
	for _, c := range l {
		p.row(append(c.Columns(), "by "+c.String())...)
		p.below(c.Refusals())
	}
	p.flush()
}

// matchClient parses the number or the pid of a client, or the name of its program.
func matchClient(s string) (match, error) {
	if m, err := matchNumber(s); err == nil {
		return m, nil
	}
	return match{part: s}, nil
}

func (m match) client(c report.Client) bool {
	if m.part != "" {
		return m.part == c.Program
	}
	return m.numbered(c.Number) || m.numbered(uint32(c.PID))
}
