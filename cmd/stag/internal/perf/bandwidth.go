package perf

import (
	"context"
	"sync"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// batch is how many messages are posted with one call, and completed by one
// completion: an eighth of those that are under way, so that some always are.
func (o Options) batch() uint64 {
	return uint64(max(min(o.txDepth(), o.rxDepth())/8, 1))
}

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
		if l.completed != before {
			m.completed(l.completed-before, time.Now())
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
		if err := l.post(n); err != nil {
			return err
		}
		l.stopped = l.enough(l.posted, l.begun)
	}
	if !l.stopped {
		return nil
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
	took := m.ended(time.Now())
	return l.tell(note{kind: done, round: l.round, count: l.posted, took: took})
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

// room is how many messages can be posted now: a batch, or the rest, or 0.
func (l *lane) room() uint64 {
	n := l.batch()
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

// post posts the next n messages. The last of them says how many there were.
func (l *lane) post(n uint64) error {
	wrs := make([]rdma.SendWR, n)
	for i := range wrs {
		l.makeUp(l.posted)
		wrs[i] = l.message(l.posted)
		l.posted++
	}
	wrs[n-1].ID, wrs[n-1].Flags = l.posted, rdma.Signaled
	_, err := l.qp.PostSend(wrs...)
	return err
}

// message is the work request of message n.
func (l *lane) message(n uint64) rdma.SendWR {
	at := l.offset(n)
	switch op := l.Test.op(); op {
	case rdma.WRWrite:
		return rdma.SendWR{Op: op, SGL: []rdma.SGE{l.out.SGE(at, l.size)}, RKey: l.theirs.Incoming, RemoteAddr: uint64(at)}
	case rdma.WRRead:
		return rdma.SendWR{Op: op, SGL: []rdma.SGE{l.in.SGE(at, l.size)}, RKey: l.theirs.Outgoing, RemoteAddr: uint64(at)}
	default:
		return rdma.SendWR{Op: op, SGL: []rdma.SGE{l.out.SGE(at, l.size)}}
	}
}

// repay tells the peer of the Sends for which there are receives again.
func (l *lane) repay() error {
	if l.Test.op() != rdmaSend || l.received-l.repaid < l.share() {
		return nil
	}
	l.repaid = l.received
	return l.tell(note{kind: credit, round: l.round, count: l.received})
}

// meter counts what all lanes have completed in a round. It is safe for
// concurrent use.
type meter struct {
	mu       sync.Mutex
	begun    time.Time
	total    uint64 // messages
	finished time.Time

	window uint64 // messages after which there is a figure for the peak
	mark   uint64 // where the current window began
	since  time.Time
	peak   float64 // messages a second, of the best window
}

func newMeter(window uint64) *meter {
	now := time.Now()
	return &meter{begun: now, since: now, window: window}
}

func (m *meter) completed(n uint64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += n
	if got := m.total - m.mark; got >= m.window && now.After(m.since) {
		m.peak = max(m.peak, float64(got)/now.Sub(m.since).Seconds())
		m.mark, m.since = m.total, now
	}
}

// ended says how long it took until a lane was done.
func (m *meter) ended(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished = now
	return now.Sub(m.begun)
}

// sofar is what has been completed.
func (m *meter) sofar() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}
