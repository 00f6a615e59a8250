package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// receive returns receive request i. It has memory only in tests of Sends.
func (n *notes) receive(i uint64) rdma.RecvWR {
	if n.l.run.Test.op() != rdmaSend {
		return rdma.RecvWR{ID: i}
	}
	return rdma.RecvWR{ID: i, SGL: []rdma.SGE{n.in.SGE(n.receivePlace(i), n.l.run.largest())}}
}

func (n *notes) receivePlace(i uint64) int {
	return int(i) % n.l.run.receiveSlots() * n.l.run.largest()
}

// came handles the completion of a receive: a note if the Send is solicited, else a message.
func (n *notes) came(c *rdma.Completion) error {
	if c.Solicited {
		return n.note()
	}
	return n.arrived(c)
}

// sent does nothing: no step waits for the completion of a note.
func (n *notes) sent(*rdma.Completion) error { return nil }

func (n *notes) check() error { return nil }
func (n *notes) news()        {}

// quiet does nothing. It is called if a wait without a limit has ended and another goroutine has taken the completion.
func (n *notes) quiet(context.Context) error { return nil }

// failed returns an error with the operation and the status of c, and with the error of the connection, which says
// more than the status.
func (n *notes) failed(ctx context.Context, c *rdma.Completion) error {
	if c.Status == rdma.Flushed && c.Op == rdma.WCRecv && n.bye {
		return nil // the peer has already begun to close the connection
	}
	select {
	case <-n.l.qp.Done():
	case <-ctx.Done():
	}
	if err := n.l.qp.Err(); err != nil {
		return fmt.Errorf("%v: %v: %w", c.Op, c.Status, err)
	}
	return errors.New("the peer has ended the test: look at its output")
}

// measured returns the number of this end's messages. The peer reports the number of its own messages.
func (n *notes) measured() uint64 { return n.l.completed }

// turn posts messages, as many as fit, and sends the notes that are due. over reports that the round is over at both ends.
func (n *notes) turn(m *meter) (over bool, limit time.Duration, err error) {
	if err := n.repay(); err != nil {
		return false, 0, err
	}
	if err := n.push(m); err != nil {
		return false, 0, err
	}
	return n.doneTold && n.peerDone, 0, nil
}

func (n *notes) push(m *meter) error {
	l, run := n.l, n.l.run
	n.stopped = n.stopped || !run.drives() || run.Both && n.peerGaveUp()
	for !n.stopped {
		k := l.room()
		if k == 0 || run.Test.op() == rdmaSend && l.posted+k-n.credited > uint64(run.RxDepth) {
			break
		}
		m.posting(k)
		if err := l.post(k); err != nil {
			return err
		}
		n.stopped = run.enough(l.posted, l.begun)
	}
	if !n.stopped {
		return nil
	}
	if err := l.mark(); err != nil {
		return err
	}
	if !n.lastTold && l.posted > 0 && run.Test.op() != rdma.WRRead {
		n.lastTold = true
		if err := n.tell(note{kind: last, round: n.round, count: l.posted}); err != nil {
			return err
		}
	}
	if n.doneTold || l.completed < l.posted || n.lastTold && !n.arrivedAll {
		return nil
	}
	return n.tellDone(m)
}

// tellDone sends the peer this end's result.
func (n *notes) tellDone(m *meter) error {
	n.doneTold = true
	now := time.Now()
	m.ended(now)
	k, took := m.measured(n.l.inside, n.l.posted, now)
	return n.tell(note{kind: done, round: n.round, count: n.l.posted, took: took, measured: k, peak: m.best()})
}

// peerGaveUp reports whether the peer, which sends as well, has stopped early because of an interrupt. In a test by
// time it reports whether the peer has stopped at all.
func (n *notes) peerGaveUp() bool {
	return n.peerDone && (n.l.run.Duration > 0 || n.peer.count < n.l.run.Iterations)
}

// repay sends the peer a credit for the Sends whose receives have been posted again.
func (n *notes) repay() error {
	if n.l.run.Test.op() != rdmaSend || n.l.received-n.repaid < n.l.run.share() {
		return nil
	}
	n.repaid = n.l.received
	return n.tell(note{kind: credit, round: n.round, count: n.l.received})
}

// turns runs call at the client, and answer at the server.
func (n *notes) turns(ctx context.Context, times *samples, m *meter) error {
	if n.l.run.serves() {
		return n.answer(ctx, times, m)
	}
	return n.call(ctx, times, m)
}

// call sends one message at a time, and measures until the answer arrives.
func (n *notes) call(ctx context.Context, times *samples, m *meter) error {
	if err := n.l.call(ctx, times, m, exchange{ping: n.ping, answers: n.l.run.Test.op() != rdma.WRRead}); err != nil {
		return err
	}
	if err := n.tell(note{kind: done, round: n.round, count: n.l.posted}); err != nil {
		return err
	}
	for !n.peerDone {
		if err := n.l.await(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// answer sends one message for each message that arrives. The first message may have arrived before the call, together
// with the client's note that it is ready.
func (n *notes) answer(ctx context.Context, times *samples, m *meter) error {
	over := func() bool { return n.peerDone }
	if err := n.l.answer(ctx, times, m, exchange{ping: n.ping, over: over}); err != nil {
		return err
	}
	return n.tell(note{kind: done, round: n.round, count: n.l.posted})
}

// ping sends one message. After a Write it sends a Send without payload, so that the peer can wait for a completion
// instead of polling memory.
func (n *notes) ping() error {
	l := n.l
	n.fill()
	wrs := []rdma.SendWR{l.message(l.posted)}
	l.posted++
	if l.run.Test.op() == rdma.WRWrite {
		wrs = append(wrs, rdma.SendWR{Op: rdma.WRSend})
	}
	end := &wrs[len(wrs)-1]
	end.ID, end.Flags = l.posted, rdma.Signaled
	_, err := l.qp.PostSend(wrs...)
	return err
}
