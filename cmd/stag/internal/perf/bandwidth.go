package perf

import (
	"context"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// flow is a round of a lane in a test of bandwidth.
func (l *lane) flow(ctx context.Context, m *meter) error {
	for {
		over, nap, err := l.talk.turn(m)
		if over || err != nil {
			return err
		}
		before := l.talk.measured()
		if err := l.await(ctx, nap); err != nil {
			return err
		}
		if n := l.talk.measured() - before; n > 0 && m.completed(n, time.Now()) {
			l.inside += n
		}
	}
}

// enough says whether a lane that has posted so many messages posts no more.
func (s *runner) enough(posted uint64, begun time.Time) bool {
	if s.Duration > 0 {
		return time.Since(begun) >= s.Duration || s.interrupted()
	}
	return posted >= s.Iterations || s.interrupted()
}

// room is how many messages the send queue has room for now: a list, or the rest, or 0.
func (l *lane) room() uint64 {
	n := l.run.list()
	if l.run.Duration == 0 {
		n = min(n, l.run.Iterations-l.posted)
	}
	if l.posted+n-l.completed > uint64(l.run.TxDepth) {
		return 0
	}
	return n
}

// post posts the next n messages. A completion says how many there were.
func (l *lane) post(n uint64) error {
	l.wrs = l.wrs[:0]
	for range n {
		l.talk.fill()
		wr := l.message(l.posted)
		l.posted++
		if l.posted%l.run.moderation(l.size) == 0 || l.posted == l.run.Iterations {
			wr.ID, wr.Flags = l.posted, rdma.Signaled
			l.signaled = l.posted
		}
		l.wrs = append(l.wrs, wr)
	}
	_, err := l.qp.PostSend(l.wrs...)
	return err
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

// message is the work request of message n.
func (l *lane) message(n uint64) rdma.SendWR {
	offset := l.talk.offset(n)
	at := l.local.at + offset
	wr := rdma.SendWR{Op: l.run.Test.op()}
	if wr.Op != rdmaSend {
		wr.RKey, wr.RemoteAddr = l.remote.key, l.remote.addr+uint64(offset)
	}
	if l.size <= l.run.Inline && wr.Op != rdma.WRRead {
		wr.Inline = l.local.mr.Bytes()[at:][:l.size]
	} else {
		wr.SGL = []rdma.SGE{l.local.mr.SGE(at, l.size)}
	}
	return wr
}
