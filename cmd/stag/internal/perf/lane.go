package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// lane is a QP with what it needs. One goroutine at a time uses it.
type lane struct {
	*session
	index  int
	cq     *rdma.CQ
	qp     *rdma.QP
	out    *rdma.MR // what messages are sent from, or read from by the peer
	in     *rdma.MR // what they come to
	notes  *rdma.MR
	theirs ticket

	told, noted uint64 // notes
	peerReady   uint32 // the round
	bye         bool   // the peer says so
	cut         bool   // and that it was interrupted
	again       []rdma.RecvWR
	wrs         []rdma.SendWR // of one call
	progress
}

// progress is how far a lane is with a round.
type progress struct {
	round     uint32
	size      int    // octets of a message
	posted    uint64 // messages of ours
	signaled  uint64 // of them, those up to the last that has a completion
	completed uint64 // of them
	inside    uint64 // of them, those within the margins
	credited  uint64 // of them, those that the peer says have arrived
	received  uint64 // messages of the peer's: Sends, or Writes with a Send behind
	repaid    uint64 // of them, those that we have told the peer of
	begun     time.Time
	stopped   bool // all have been posted

	lastTold   bool
	arrivedAll bool // says the peer
	doneTold   bool
	peerDone   bool
	peer       note // done
}

func (s *session) makeLanes() error {
	for i := range s.QPs {
		l := &lane{session: s, index: i}
		if err := l.make(); err != nil {
			return err
		}
		s.lanes = append(s.lanes, l)
	}
	return nil
}

// make makes everything of a lane. The adapter's Close takes it away.
func (l *lane) make() error {
	pd, err := l.adapter.AllocPD()
	if err != nil {
		return err
	}
	for _, m := range []struct {
		mr     **rdma.MR
		octets int
		access rdma.Access
	}{
		{&l.out, l.outgoing(), rdma.RemoteRead},
		{&l.in, l.incoming(), rdma.LocalWrite | rdma.RemoteWrite},
		{&l.notes, notesAtOnce * noteLen, rdma.LocalWrite | rdma.RemoteWrite},
	} {
		if *m.mr, err = pd.AllocMR(m.octets, m.access); err != nil {
			return err
		}
	}
	// A message may be a Write and a Send, a note is.
	sends := 2*l.txDepth() + 4*notesAtOnce
	if l.cq, err = l.adapter.CreateCQ(sends + l.receives()); err != nil {
		return err
	}
	l.qp, err = pd.CreateQP(rdma.QPConfig{SendCQ: l.cq, RecvCQ: l.cq, SendDepth: sends, RecvDepth: l.receives(), MaxSGE: 1, MaxInline: max(l.Inline, noteLen)})
	if err != nil {
		return err
	}
	for i := range l.receives() {
		l.again = append(l.again, l.receive(uint64(i)))
	}
	return l.repost()
}

// receive is receive i. Only Sends of messages need memory.
func (l *lane) receive(i uint64) rdma.RecvWR {
	if l.Test.op() != rdmaSend {
		return rdma.RecvWR{ID: i}
	}
	return rdma.RecvWR{ID: i, SGL: []rdma.SGE{l.in.SGE(l.receivePlace(i), l.largest())}}
}

func (l *lane) receivePlace(i uint64) int { return int(i) % l.receiveSlots() * l.largest() }

// repost posts the receives that have been used.
func (l *lane) repost() error {
	if len(l.again) == 0 {
		return nil
	}
	_, err := l.qp.PostRecv(l.again...)
	l.again = l.again[:0]
	return err
}

// await waits until something has happened, and takes note of it.
func (l *lane) await(ctx context.Context) error {
	var got [64]rdma.Completion
	n := l.poll(l.cq, got[:])
	if n == 0 {
		if err := l.cq.Wait(ctx); err != nil {
			return err
		}
		n = l.cq.Poll(got[:])
	}
	for i := range got[:n] {
		if err := l.handle(ctx, &got[i]); err != nil {
			return err
		}
	}
	return l.repost()
}

// polling is how long it is looked whether there is a completion, and worked for
// the connection, before a Wait, which does the same: about what falling asleep
// and waking up cost. Whoever looks for longer takes the processor from others,
// where there are few.
const polling = 20 * time.Microsecond

// poll looks for completions, but with Events leaves that to Wait.
func (o Options) poll(cq *rdma.CQ, dst []rdma.Completion) (n int) {
	if o.Events {
		return 0
	}
	for end := time.Now().Add(polling); n == 0 && time.Now().Before(end); {
		n = cq.Poll(dst)
	}
	return n
}

func (l *lane) handle(ctx context.Context, c *rdma.Completion) error {
	switch {
	case c.Status == rdma.Flushed && c.Op == rdma.WCRecv && l.bye:
		return nil // the peer has gone on to close the connection
	case c.Status != rdma.Success:
		return l.failed(ctx, c)
	case c.Op == rdma.WCRecv:
		var err error
		if c.Solicited {
			err = l.note()
		} else {
			err = l.arrived(c)
		}
		l.again = append(l.again, l.receive(c.ID))
		return err
	case c.ID == noteID:
		return nil
	}
	before := l.completed
	l.completed = c.ID
	return l.checkRead(before)
}

// failed says why c failed: the end of the connection knows more.
func (l *lane) failed(ctx context.Context, c *rdma.Completion) error {
	select {
	case <-l.qp.Done():
	case <-ctx.Done():
	}
	if err := l.qp.Err(); err != nil {
		return fmt.Errorf("%v: %v: %w", c.Op, c.Status, err)
	}
	return errors.New("the peer has ended the test: what it says tells why")
}

// meetRound waits until both ends are ready for a round. Bye: there will be none.
func (l *lane) meetRound(ctx context.Context, round uint32, size int) (bye bool, err error) {
	l.progress = progress{round: round, size: size}
	l.fill()
	if err := l.tell(note{kind: ready, round: round}); err != nil {
		return false, err
	}
	for l.peerReady != round && !l.bye {
		if err := l.await(ctx); err != nil {
			return false, err
		}
	}
	l.begun = time.Now()
	return l.bye, nil
}

// leave ends the rounds, and the connection in good order. Only when the peer
// has said goodbye it has found nothing wrong.
func (l *lane) leave(ctx context.Context) error {
	n := note{kind: goodbye}
	if l.interrupted() {
		n.count = 1
	}
	if err := l.tell(n); err != nil {
		return err
	}
	for !l.bye {
		if err := l.await(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the connection was not closed within %v", patience))
	defer cancel()
	return l.qp.Disconnect(ctx)
}

// patience is how long closing may take.
const patience = 10 * time.Second

// pattern is what a round's messages of one end consist of.
func (l *lane) pattern(ofServer bool) octets.Pattern {
	p := octets.Pattern(2 * l.round)
	if ofServer {
		p++
	}
	return p
}
