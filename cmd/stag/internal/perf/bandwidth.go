package perf

import (
	"context"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// flow is a round of a lane in a test of bandwidth.
func (l *lane) flow(ctx context.Context, m *meter) error {
	for {
		if err := l.repay(); err != nil {
			return err
		}
		if err := l.push(m); err != nil {
			return err
		}
		if l.doneTold && l.peerDone {
			return nil
		}
		before := l.completed
		if err := l.await(ctx); err != nil {
			return err
		}
		if n := l.completed - before; n > 0 && m.completed(n, time.Now()) {
			l.inside += n
		}
	}
}

// push posts what can be posted, and says when that was all.
func (l *lane) push(m *meter) error {
	l.stopped = l.stopped || !l.drives() || l.Both && l.peerGaveUp()
	for !l.stopped {
		n := l.room()
		if n == 0 {
			break
		}
		m.posting(n)
		if err := l.post(n); err != nil {
			return err
		}
		l.stopped = l.enough(l.posted, l.begun)
	}
	if !l.stopped {
		return nil
	}
	if err := l.mark(); err != nil {
		return err
	}
	if !l.lastTold && l.posted > 0 && l.Test.op() != rdma.WRRead {
		l.lastTold = true
		if err := l.tell(note{kind: last, round: l.round, count: l.posted}); err != nil {
			return err
		}
	}
	if l.doneTold || l.completed < l.posted || l.lastTold && !l.arrivedAll {
		return nil
	}
	l.doneTold = true
	now := time.Now()
	m.ended(now)
	n, took := m.measured(l.inside, l.posted, now)
	return l.tell(note{kind: done, round: l.round, count: l.posted, took: took, measured: n, peak: m.best()})
}

// mark asks for a completion behind the last messages, if none of theirs will
// come: it was not known that they would be the last.
func (l *lane) mark() error {
	if l.signaled == l.posted {
		return nil
	}
	l.signaled = l.posted
	_, err := l.qp.PostSend(rdma.SendWR{ID: l.posted, Op: rdma.WRWrite, Flags: rdma.Signaled})
	return err
}

// peerGaveUp says whether the peer has stopped sending before it should have:
// it was interrupted. By the clock, it stops when we do.
func (l *lane) peerGaveUp() bool {
	return l.peerDone && (l.Duration > 0 || l.peer.count < l.Iterations)
}

// enough says whether a lane that has posted so many messages posts no more.
func (s *session) enough(posted uint64, begun time.Time) bool {
	if s.Duration > 0 {
		return time.Since(begun) >= s.Duration || s.interrupted()
	}
	return posted >= s.Iterations || s.interrupted()
}

// room is how many messages can be posted now: a list, or the rest, or 0.
func (l *lane) room() uint64 {
	n := l.list()
	if l.Duration == 0 {
		n = min(n, l.Iterations-l.posted)
	}
	if l.posted+n-l.completed > uint64(l.TxDepth) {
		return 0
	}
	if l.Test.op() == rdmaSend && l.posted+n-l.credited > uint64(l.RxDepth) {
		return 0
	}
	return n
}

// post posts the next n messages. A completion says how many there were.
func (l *lane) post(n uint64) error {
	l.wrs = l.wrs[:0]
	for range n {
		l.makeUp(l.posted)
		wr := l.message(l.posted)
		l.posted++
		if l.posted%l.moderation(l.size) == 0 || l.posted == l.Iterations {
			wr.ID, wr.Flags = l.posted, rdma.Signaled
			l.signaled = l.posted
		}
		l.wrs = append(l.wrs, wr)
	}
	_, err := l.qp.PostSend(l.wrs...)
	return err
}

// message is the work request of message n.
func (l *lane) message(n uint64) rdma.SendWR {
	at := l.offset(n)
	wr := rdma.SendWR{Op: l.Test.op()}
	switch {
	case wr.Op == rdma.WRRead:
		wr.SGL = []rdma.SGE{l.in.SGE(at, l.size)}
		wr.RKey, wr.RemoteAddr = l.theirs.Outgoing, uint64(at)
		return wr
	case wr.Op == rdma.WRWrite:
		wr.RKey, wr.RemoteAddr = l.theirs.Incoming, uint64(at)
	}
	if l.size <= l.Inline {
		wr.Inline = l.out.Bytes()[at:][:l.size]
	} else {
		wr.SGL = []rdma.SGE{l.out.SGE(at, l.size)}
	}
	return wr
}

// repay tells the peer of the Sends for which there are receives again.
func (l *lane) repay() error {
	if l.Test.op() != rdmaSend || l.received-l.repaid < l.share() {
		return nil
	}
	l.repaid = l.received
	return l.tell(note{kind: credit, round: l.round, count: l.received})
}
