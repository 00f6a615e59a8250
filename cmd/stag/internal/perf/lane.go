package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// lane is a QP with what it needs. One goroutine at a time uses it.
type lane struct {
	run    *runner
	talk   talk
	index  int
	cq     *rdma.CQ
	qp     *rdma.QP
	local  place  // what messages are sent from, or read to
	remote target // the peer's memory for Writes and Reads
	theirs uint32 // the number of the peer's QP

	again []rdma.RecvWR       // receives that have been used
	wrs   []rdma.SendWR       // of one call
	got   [64]rdma.Completion // of one call; not on the stack, because talk sees them
	progress
}

// place is where a lane's part of a region begins.
type place struct {
	mr *rdma.MR
	at int // octets
}

// target is memory of the peer.
type target struct {
	key  rdma.STag
	addr uint64
}

// progress is how far a lane is with a round.
type progress struct {
	size      int    // octets of a message
	posted    uint64 // messages of ours
	signaled  uint64 // of them, those up to the last that has a completion
	completed uint64 // of them
	inside    uint64 // of them, those within the margins
	received  uint64 // messages of the peer's that have been seen to come
	begun     time.Time
}

// talk is what the two ends of a lane say beside the messages: notes if the peer is
// stag perf, credits if it is perftest.
type talk interface {
	// offset is where message n is, in the memory that it is sent from and in that
	// which it comes to.
	offset(n uint64) int
	// receive is the receive of this ID.
	receive(id uint64) rdma.RecvWR
	// came handles the completion of a receive, sent that of a request that is no message.
	came(c *rdma.Completion) error
	sent(c *rdma.Completion) error
	// compare looks at the octets of what has completed since before.
	compare(before uint64) error
	// fill prepares the octets of the next message.
	fill()
	// failed says why c failed. nil: that is no matter any more.
	failed(ctx context.Context, c *rdma.Completion) error
	// check is called before each wait, news after one in which something came, and
	// quiet after one in which nothing did.
	check() error
	news()
	quiet(ctx context.Context) error
	// turn says what is due, and posts what can be posted. over: the lane has done its
	// part of the round. nap is how long to wait at most until the next turn, 0: until
	// something completes.
	turn(m *meter) (over bool, nap time.Duration, err error)
	// measured is how many messages have been measured.
	measured() uint64
	// turns is a round of a test of latency.
	turns(ctx context.Context, times *samples, m *meter) error
}

// repost posts the receives that have been used.
func (l *lane) repost() error {
	if len(l.again) == 0 {
		return nil
	}
	_, err := l.qp.PostRecv(l.again...)
	l.again = l.again[:0]
	return err
}

// listen posts the first n receives.
func (l *lane) listen(n int) error {
	for i := range n {
		l.again = append(l.again, l.talk.receive(uint64(i)))
	}
	return l.repost()
}

// await waits until something has happened, and takes note of it. It waits no longer
// than nap, unless that is 0.
func (l *lane) await(ctx context.Context, nap time.Duration) error {
	if err := l.talk.check(); err != nil {
		return err
	}
	n := l.run.poll(l.cq, l.got[:])
	if n == 0 {
		if err := l.sleep(ctx, nap); err != nil {
			return err
		}
		n = l.cq.Poll(l.got[:])
	}
	if n == 0 {
		return l.talk.quiet(ctx)
	}
	l.talk.news()
	for i := range l.got[:n] {
		if err := l.handle(ctx, &l.got[i]); err != nil {
			return err
		}
	}
	return l.repost()
}

var errNap = errors.New("slept enough")

func (l *lane) sleep(ctx context.Context, nap time.Duration) error {
	if nap == 0 {
		return l.cq.Wait(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nap, errNap)
	defer cancel()
	if err := l.cq.Wait(ctx); err != nil && !errors.Is(err, errNap) {
		return err
	}
	return nil
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

// The IDs of requests that are no messages have this bit.
const aside = 1 << 63

func (l *lane) handle(ctx context.Context, c *rdma.Completion) error {
	switch {
	case c.Status != rdma.Success:
		return l.talk.failed(ctx, c)
	case c.Op == rdma.WCRecv:
		err := l.talk.came(c)
		l.again = append(l.again, l.talk.receive(c.ID))
		return err
	case c.ID&aside != 0:
		return l.talk.sent(c)
	}
	before := l.completed
	l.completed = c.ID
	return l.talk.compare(before)
}

// named says which QP an error is of, if there are several.
func (l *lane) named(err error) error {
	if err != nil && len(l.run.lanes) > 1 {
		return fmt.Errorf("QP %d: %w", l.index+1, err)
	}
	return err
}
