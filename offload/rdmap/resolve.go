package rdmap

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/tpt"
)

// The memory of an STag can be another process's (tpt.Unresolved). A step may not ask that
// process. So the segment stays in the stream, Wants is raised, and the receiver waits. The
// owner of the QP asks, calls Resolved, and rings the doorbell. Then the receiver processes
// the same segment again. The peer notices only that its window stays closed.

// unresolved is the Code of a segment that waits for the memory of its STag. It is never
// sent.
var unresolved = Code{0xff, 0xff, 0xff}

// question is the question to the owner of the QP about one STag.
type question struct {
	stag   atomic.Uint32
	answer atomic.Uint32
}

// These are the values of question.answer.
const (
	unanswered uint32 = iota
	present           // the memory may be there now
	absent            // the memory will not come
)

// resolve makes the receiver wait for the memory of s, and returns unresolved. It returns
// code if the memory will not come.
func (q *QP) resolve(s tpt.STag, code Code) Code {
	if q.Wants.Fire == nil {
		q.cfg.Table.Unresolved()
		return code
	}
	if q.in.held.stag == s && q.wanted.answer.Load() == absent {
		return code // whoever has answered has counted the refusal
	}
	q.in.held = delivery{active: true, stag: s}
	q.wanted.answer.Store(unanswered)
	q.wanted.stag.Store(uint32(s))
	q.cfg.Board.Raise(&q.Wants)
	return unresolved
}

// Wanted returns the STag whose memory a request of the peer waits for. Wants has been
// raised.
func (q *QP) Wanted() tpt.STag { return tpt.STag(q.wanted.stag.Load()) }

// Resolved says that the memory of the wanted STag may be there now, or that it will not
// come. The caller must ring the stream's doorbell afterwards.
func (q *QP) Resolved(there bool) {
	answer := absent
	if there {
		answer = present
	}
	q.wanted.answer.Store(answer)
}

// lost counts an access to memory of a process that has ended since its request came.
func (q *QP) lost(f tpt.Fault) {
	if f == tpt.Unresolved {
		q.cfg.Table.Unresolved()
	}
}
