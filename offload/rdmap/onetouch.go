package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/tpt"
)

// touch decides about the last segment of a Write or a Read Response that is next in
// order, if its entry is of one touch: the entry serves one message (US 7,299,266, FIG.
// 18B). m has allowed the access. touch makes the entry invalid in any case, and refuses
// the segment with BadSTag if another message has used the entry. The octets of m may be
// used until the end of the step.
func (q *QP) touch(m *tpt.Memo, s *ddp.Segment) tpt.Fault {
	if enabled, touched := m.OneTouch(); enabled && s.Last {
		return q.spend(s.STag, touched)
	}
	return tpt.OK
}

// spend makes the entry of one touch invalid for a message that ends now. touched says
// that a message has used the entry before. The message itself has used it if its last
// segment arrived out of order (incoming.touched).
func (q *QP) spend(stag tpt.STag, touched bool) tpt.Fault {
	if _, first := q.cfg.Table.Spend(stag); q.in.touched || first && !touched {
		return tpt.OK
	}
	return tpt.BadSTag
}

// touchEarly decides whether a segment behind a hole may be placed. The last segment of
// a message to an entry of one touch marks the entry as touched, and stores its position.
// The entry becomes invalid when the stream reaches that position. If the entry is
// touched already, the segment is refused when the stream reaches it.
func (q *QP) touchEarly(m *tpt.Memo, s *ddp.Segment, e *early) bool {
	if enabled, _ := m.OneTouch(); !enabled || !s.Last {
		return true
	}
	e.touched = q.cfg.Table.Touch(s.STag, uint64(q.cfg.Number)<<32|uint64(e.tail.End))
	return e.touched
}
