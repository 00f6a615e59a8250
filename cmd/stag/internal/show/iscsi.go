package show

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

type session struct {
	owner
	report.Session
}

type sessionList []session

func sessions(sources []engines.Source, w want) list {
	l := sessionList{}
	for _, s := range sources {
		for _, x := range s.ISCSI {
			if w.of(x.Device) && w.match.numbered(x.Number) && w.match.names(x.Initiator, x.Target) {
				l = append(l, session{ownerOf(s), x})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y session) int { return cmp.Or(x.order(y.owner), cmp.Compare(x.Number, y.Number)) })
	return l
}

func (l sessionList) len() int { return len(l) }

// text prints a row for each session, with the names, the connection and the commands in
// progress below. With detail it also prints the counters.
func (l sessionList) text(p *page) {
	for _, x := range l {
		p.row(append(x.Columns(), x.String())...)
		p.below(x.Names())
		p.below(x.Connection())
		p.below(x.Ages())
		if x.Error != "" {
			p.below("error: " + x.Error)
		}
		if p.detail {
			for _, part := range []string{"", "_reason", "_latency"} {
				if text := pairs(layer(x.Counters, "iscsi_"+x.Role+part), p.all); text != "" {
					p.below(strings.TrimLeft(part+" "+text, "_ "))
				}
			}
		}
	}
	p.flush()
}

// layer returns the counters of one layer.
func layer(all []report.Counter, name string) (some []report.Counter) {
	for _, c := range all {
		if c.Layer == name {
			some = append(some, c)
		}
	}
	return some
}

type lun struct {
	owner
	report.LUN
}

type lunList []lun

func luns(sources []engines.Source, w want) list {
	l := lunList{}
	for _, s := range sources {
		for _, x := range s.LUNs {
			if w.has(s) && w.match.numbered(uint32(x.LUN)) && w.match.names(x.Target) {
				l = append(l, lun{ownerOf(s), x})
			}
		}
	}
	slices.SortStableFunc(l, func(x, y lun) int { return x.order(y.owner) })
	return l
}

func (l lunList) len() int { return len(l) }

// text prints a row for each unit, with its medium and reservation below.
func (l lunList) text(p *page) {
	for _, x := range l {
		p.row(append(x.Columns(), x.String())...)
		p.below(x.Details())
	}
	p.flush()
}

// matchISCSI parses a number, or a part of an iSCSI name.
func matchISCSI(s string) (match, error) {
	if m, err := matchNumber(s); err == nil {
		return m, nil
	}
	return match{part: s}, nil
}

// names reports whether the match selects one of these iSCSI names.
func (m match) names(all ...string) bool {
	return slices.ContainsFunc(all, func(name string) bool { return strings.Contains(name, m.part) })
}
