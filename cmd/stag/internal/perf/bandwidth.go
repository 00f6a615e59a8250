package perf

import (
	"context"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// flow runs one round of a bandwidth test on a lane.
func (l *lane) flow(ctx context.Context, m *meter) error {
	for {
		over, limit, err := l.talk.turn(m)
		if over || err != nil {
			return err
		}
		before := l.talk.measured()
		if err := l.await(ctx, limit); err != nil {
			return err
		}
		if n := l.talk.measured() - before; n > 0 && m.completed(n, time.Now()) {
			l.inside += n
		}
	}
}

// enough reports whether a lane that has posted this many messages is done posting.
func (s *runner) enough(posted uint64, begun time.Time) bool {
	if s.Duration > 0 {
		return time.Since(begun) >= s.Duration || s.interrupted()
	}
	return posted >= s.Iterations || s.interrupted()
}

// room returns how many messages to post now: a list of messages, or the remaining messages if they are fewer. It
// returns 0 if the send queue has no room for so many.
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

// post posts the next n messages. The ID of a signaled one is the number of messages posted up to it.
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

// mark posts a signaled request if the last message is not signaled. Its completion then covers all messages. The last
// message is not signaled if the time or an interrupt ended the posting.
func (l *lane) mark() error {
	if l.signaled == l.posted {
		return nil
	}
	l.signaled = l.posted
	_, err := l.qp.PostSend(rdma.SendWR{ID: l.posted, Op: rdma.WRWrite, Flags: rdma.Signaled})
	return err
}

// message returns the work request of message n.
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
