package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/tpt"
)

// touch decides about the last segment of a Write that is next in order, if its entry is
// of one touch: the entry serves one message (US 7,299,266, FIG. 18B). m has allowed the
// access. touch makes the entry invalid in any case, and refuses the segment if another
// message has used the entry. The octets of m may be used until the end of the step.
func (q *QP) touch(m *tpt.Memo, s *ddp.Segment) Code {
	enabled, touched := m.OneTouch()
	switch {
	case !enabled:
		return Code{}
	case q.in.touched: // the segment itself has touched the entry when it arrived out of order
		q.cfg.Table.Spend(s.STag)
		return Code{}
	}
	if _, first := q.cfg.Table.Spend(s.STag); first && !touched {
		return Code{}
	}
	return writeCode(tpt.BadSTag)
}

// touchEarly decides whether a segment behind a hole may be placed. The last segment of
// a Write to an entry of one touch marks the entry as touched, and stores its position.
// The entry becomes invalid when the stream reaches that position. If the entry is
// touched already, the segment is refused when the stream reaches it.
func (q *QP) touchEarly(m *tpt.Memo, s *ddp.Segment, e *early) bool {
	if enabled, _ := m.OneTouch(); !enabled || !s.Last {
		return true
	}
	e.touched = q.cfg.Table.Touch(s.STag, uint64(q.cfg.Number)<<32|uint64(e.tail.End))
	return e.touched
}
