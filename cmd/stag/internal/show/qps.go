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
		p.row("link "+cmp.Or(q.Device, "-"), fmt.Sprint("lqpn ", q.Number), "type RC", "state "+strings.ToUpper(q.State), fmt.Sprint("pdn ", q.PD),
			fmt.Sprint("scqn ", q.SendCQ), fmt.Sprint("rcqn ", q.RecvCQ), fmt.Sprint("sq ", q.SendDepth), fmt.Sprint("rq ", q.RecvDepth), q.String())
		p.below(q.connection())
		if q.Error != "" {
			p.below("error: " + q.Error)
		}
		if p.detail {
			p.below(q.limits())
			p.below(pairs(q.Counters, p.all))
		}
	}
	p.flush()
}

// connection returns the facts about the QP's connection, or "" while there is none.
func (q qp) connection() string {
	if q.Local == nil || q.Remote == nil {
		return ""
	}
	return words("src "+q.Local.String(), "dst "+q.Remote.String(), q.flow(), "role "+q.role(), fmt.Sprint("mpa ", q.Revision),
		"crc "+onOff(q.CRC), "markers "+q.Markers, fmt.Sprint("ird ", q.IRD), fmt.Sprint("ord ", q.ORD))
}

func (q qp) flow() string {
	if q.Flow == 0 {
		return ""
	}
	return "flow " + q.Flow.String()
}

// role returns the role of this end in the MPA handshake.
func (q qp) role() string {
	if q.Initiator {
		return "initiator"
	}
	return "responder"
}

func (q qp) limits() string {
	return words(fmt.Sprint("max_sge ", q.MaxSGE), fmt.Sprint("max_inline ", q.MaxInline))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
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
