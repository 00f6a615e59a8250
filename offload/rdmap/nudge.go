package rdmap

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// nudge is an initiator's remedy for a responder that overlooks its first
// FPDUs. Linux siw sends its Reply before it listens for FPDUs: what comes in
// between is acknowledged by its TCP, and lies there until another segment
// comes.
//
// So when something has been sent and acknowledged, nothing has ever come back,
// and it has been quiet for a while, the peer is sent an RDMA Write of nothing,
// which means nothing (RFC 5041 §5.2: not even its STag is looked at). A peer
// that had nothing to say has had a few FPDUs of 20 octets too many; one that
// says something in time has had none.
//
// Nothing waits for this but a FIN: siw forgets what it has overlooked when one
// comes in that moment, and siw 6.1 in peer-to-peer mode takes its kernel with
// it. The first nudge goes before it.
type nudge struct {
	left int           // how many may still leave
	wait time.Duration // how long it must be quiet before the next
	at   clock.Instant // when it will have been quiet for that long
	due  bool          // one is the next message
}

// The nudges leave after 50, 150, 350 and 750 ms of quiet: siw listens some
// milliseconds after its Reply, on a machine that is emulated some hundred.
const (
	nudges     = 4
	nudgeAfter = 50 * time.Millisecond
)

// quiet decides whether it is time for a nudge. What the peer's TCP has not
// acknowledged it will be sent again, which is as good.
func (q *QP) quiet(s stream.Stream) {
	n := &q.nudge
	switch {
	case !n.at.Due(q.now):
	case q.out.msg.Open() || s.Unacked() != 0:
		n.at = q.now.Add(n.wait)
	default:
		n.left--
		n.wait *= 2
		n.at, n.due = clock.Never, true
	}
}

// spoke is called when FPDUs have left: the quiet begins anew.
func (q *QP) spoke() {
	if n := &q.nudge; n.left > 0 {
		n.at = q.now.Add(n.wait)
	}
}

// heard is called when something has come from the peer: it listens.
func (q *QP) heard() { q.nudge = nudge{} }

// holdsFIN reports whether something has left, nothing has come back, and there
// was no nudge yet.
func (n *nudge) holdsFIN() bool { return n.left == nudges && n.at != clock.Never }

// beginNudge starts a nudge.
func (q *QP) beginNudge() {
	q.nudge.due = false
	q.start(aReady, wire.OpWrite, 0)
}
