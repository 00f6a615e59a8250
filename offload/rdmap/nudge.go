package rdmap

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// nudge is an initiator's remedy for a responder that overlooks the first FPDUs. Linux
// siw sends its Reply before it listens for FPDUs. TCP acknowledges FPDUs that arrive
// in between, but siw does not read them until another segment comes.
//
// The initiator therefore sends an empty RDMA Write if three conditions hold: the peer
// has acknowledged what this end has sent, the peer has never sent anything, and the
// connection has been quiet for a while. An empty Write has no effect (RFC 5041 §5.2:
// the peer does not even look at its STag). A peer that has nothing to send gets a few
// extra FPDUs of 20 octets. A peer that sends something in time gets none.
//
// Only a FIN waits for a nudge. If a FIN comes while siw overlooks FPDUs, siw forgets
// these FPDUs, and siw 6.1 in peer-to-peer mode crashes the peer's kernel. The first
// nudge is sent before the FIN.
//
// A responder that sends first, after mpa.Agreed.EagerAfter, has the same remedy: its peer
// may overlook FPDUs that come before it has read the Reply.
type nudge struct {
	left int           // number of nudges that may still be sent
	wait time.Duration // how long the connection must be quiet before the next nudge
	at   clock.Instant // time at which the connection has been quiet for wait, or at which a responder may send first
	due  bool          // the next message is a nudge
}

// The nudges are sent after 50, 150, 350 and 750 ms of quiet. siw listens some
// milliseconds after its Reply, or some hundred milliseconds on an emulated machine.
const (
	nudges     = 4
	nudgeAfter = 50 * time.Millisecond
)

// await returns n with the end of a responder's wait for the peer's first FPDU, if the wait begins
// now.
func (o *opening) await(now clock.Instant, n nudge) nudge {
	if o.patience != 0 && !o.begun {
		n.at = now.Add(o.patience)
	}
	return n
}

// quiet decides whether it is time for a nudge, or for the first FPDU of a responder. While octets are unacknowledged no
// nudge is needed, because TCP sends the octets again, which has the same effect.
func (q *QP) quiet(s stream.Stream) {
	n := &q.nudge
	*n = q.opening.await(q.now, *n)
	q.opening.patience = 0
	switch {
	case !n.at.Due(q.now):
	case q.out.msg.Open() || s.Unacked() != 0:
		n.at = q.now.Add(n.wait)
	case !q.opening.open:
		q.opening.open, n.at = true, clock.Never
	default:
		n.left--
		n.wait *= 2
		n.at, n.due = clock.Never, true
	}
}

// spoke restarts the quiet time. The sender calls it when FPDUs have left.
func (q *QP) spoke() {
	if n := &q.nudge; n.left > 0 {
		n.at = q.now.Add(n.wait)
	}
}

// heard ends the nudges. The receiver calls it when something has come from the peer,
// which shows that the peer listens.
func (q *QP) heard() { q.nudge = nudge{} }

// holdsFIN reports whether something has left, nothing has come back, and no nudge has
// been sent yet.
func (q *QP) holdsFIN() bool {
	return q.opening.open && q.nudge.left == nudges && q.nudge.at != clock.Never
}

func (q *QP) beginNudge() {
	q.nudge.due = false
	q.start(aReady, wire.OpWrite, 0)
}
