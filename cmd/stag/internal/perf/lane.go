package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// lane is a QP with its memory and its progress. Only one goroutine at a time uses it.
type lane struct {
	run    *runner
	talk   talk
	index  int
	cq     *rdma.CQ
	qp     *rdma.QP
	local  place  // memory that messages are sent from, or read into
	remote target // the peer's memory for Writes and Reads
	theirs uint32 // number of the peer's QP

	again []rdma.RecvWR       // used receives that must be posted again
	wrs   []rdma.SendWR       // requests of one PostSend, kept to avoid allocations
	got   [64]rdma.Completion // completions of one Poll; a field, because a local variable would be allocated: talk gets pointers to it
	progress
}

// place is the beginning of a lane's part of a region.
type place struct {
	mr *rdma.MR
	at int // offset in the region, in octets
}

// target is memory of the peer.
type target struct {
	key  rdma.STag
	addr uint64
}

// progress is the state of a lane in a round.
type progress struct {
	size      int    // size of a message in octets
	posted    uint64 // number of this end's messages that were posted
	signaled  uint64 // number of this end's messages up to the last signaled one
	completed uint64 // number of this end's messages that have completed
	inside    uint64 // number of this end's messages that completed between the margins
	received  uint64 // number of the peer's messages that have arrived, as far as this end knows
	begun     time.Time
}

// talk is the exchange between the two ends of a lane in addition to the messages. type notes implements talk for
// stag perf as the peer, and type strand for perftest as the peer.
type talk interface {
	// offset returns where message n begins, both in the memory that sends the message and in the memory that receives
	// it.
	offset(n uint64) int
	// receive returns the receive request with this ID.
	receive(id uint64) rdma.RecvWR
	// came handles the completion of a receive. sent handles the completion of a request that is no message.
	came(c *rdma.Completion) error
	sent(c *rdma.Completion) error
	// compare compares the octets of the messages that have completed since before.
	compare(before uint64) error
	// fill prepares the octets of the next message.
	fill()
	// failed returns why c failed. It returns nil if the failure does not matter any more.
	failed(ctx context.Context, c *rdma.Completion) error
	// check is called before each wait, news after a wait in which something arrived, and quiet after a wait in which
	// nothing arrived.
	check() error
	news()
	quiet(ctx context.Context) error
	// turn posts messages, as many as fit into the send queue, and the notes or credits that are due. over reports that
	// the lane has done its part of the round. limit is the longest time to wait before the next turn; 0: no limit.
	turn(m *meter) (over bool, limit time.Duration, err error)
	// measured returns how many messages have been measured.
	measured() uint64
	// turns runs one round of a latency test.
	turns(ctx context.Context, times *samples, m *meter) error
}

// repost posts the used receives again.
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

// await waits until something completes, and handles it. It waits no longer than limit, unless limit is 0.
func (l *lane) await(ctx context.Context, limit time.Duration) error {
	if err := l.talk.check(); err != nil {
		return err
	}
	n := l.run.poll(l.cq, l.got[:])
	if n == 0 {
		if err := l.sleep(ctx, limit); err != nil {
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

var errWaited = errors.New("waited long enough")

func (l *lane) sleep(ctx context.Context, limit time.Duration) error {
	if limit == 0 {
		return l.cq.Wait(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errWaited)
	defer cancel()
	if err := l.cq.Wait(ctx); err != nil && !errors.Is(err, errWaited) {
		return err
	}
	return nil
}

// polling is how long poll looks for a completion, which also lets the connection make progress. If there is none,
// the caller calls Wait, which polls for the same time before it sleeps. The time is about the cost of one sleep and
// wake-up. Longer polling would take the processor from other threads on machines with few processors.
const polling = 20 * time.Microsecond

// poll polls for completions. With Events it returns 0 at once, so that the caller calls Wait.
func (o Options) poll(cq *rdma.CQ, dst []rdma.Completion) (n int) {
	if o.Events {
		return 0
	}
	for end := time.Now().Add(polling); n == 0 && time.Now().Before(end); {
		n = cq.Poll(dst)
	}
	return n
}

// aside is the bit in the IDs of requests that are not messages of the test.
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

// named adds the QP to err if there are several QPs.
func (l *lane) named(err error) error {
	if err != nil && len(l.run.lanes) > 1 {
		return fmt.Errorf("QP %d: %w", l.index+1, err)
	}
	return err
}
