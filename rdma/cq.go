package rdma

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/work"
)

// CQ is a completion queue, for any number of QPs of its adapter. A CQ is safe for
// concurrent use.
//
// Adding a completion never blocks. If the CQ is full, the completion is lost, and the
// CQ and its QPs end in error (Overrun). The requests and unpolled completions of a
// work queue together never exceed the queue's depth. A CQ whose depth is at least the
// sum of the depths of the queues that use it can therefore not be overrun.
type CQ struct {
	adapter *Adapter
	queue   *work.CQ
	number  uint32 // number in `stag show cqs`
	notify  chan struct{}
	channel *CompChannel // nil: none
	handler func()       // nil: none
	distant *distantCQ   // the completions are in a ring of the daemon; nil: there is no daemon
	mapped  bool         // the completions lie in memory of the program: see CQOptions.Memory
	context any

	polling  sync.Mutex // lock that is held during Poll
	resizing sync.Mutex // lock that is held during Resize
	contexts contexts
	runners  atomic.Pointer[runners] // runners of the CQ's QPs; nil unless progress is inline

	mu      sync.Mutex // guards the fields below; held briefly, also by engines
	wake    chan struct{}
	users   map[*QP]int            // QPs that use the CQ, with their number of queues that use it: 1 or 2
	driven  map[adapter.Runner]int // runners of QPs that use the CQ, with the number of queues that each runs and that complete to the CQ
	told    bool                   // the overrun has been reported
	closed  bool
	closing atomic.Bool
}

// CreateCQ makes a CQ for at least depth completions, 1 to Limits.MaxCQDepth. With o, at
// most one, the CQ has a completion channel or a context. The CQ belongs to no PD. Errors:
// ErrClosed, and one that names the field to change.
func (a *Adapter) CreateCQ(depth int, o ...CQOptions) (*CQ, error) {
	done, err := a.use()
	if err != nil {
		return nil, fmt.Errorf("create CQ: %w", err)
	}
	defer done()
	if err := checkCQDepth(depth); err != nil {
		return nil, fmt.Errorf("create CQ: %w", err)
	}
	c, err := a.makeCQ(depth, o)
	if err != nil {
		return nil, fmt.Errorf("create CQ: %w", err)
	}
	a.mu.Lock()
	a.cqs[c] = struct{}{}
	a.mu.Unlock()
	return c, nil
}

// makeCQ makes a CQ with the options of CreateCQ.
func (a *Adapter) makeCQ(depth int, o []CQOptions) (*CQ, error) {
	if a.through != nil {
		return a.makeDistantCQ(depth, o)
	}
	if len(o) == 0 || o[0].Memory == nil {
		c := a.newCQ(a.lastCQ.Add(1), work.NewCQ(depth, a.board))
		return c, c.choose(o)
	}
	queue, err := work.NewCQIn(o[0].Memory, depth, a.board)
	if err != nil {
		return nil, err
	}
	c := a.newCQ(a.lastCQ.Add(1), queue)
	c.mapped = true
	return c, c.choose(o)
}

func (a *Adapter) newCQ(number uint32, queue *work.CQ) *CQ {
	c := &CQ{
		adapter: a, queue: queue, number: number,
		notify: make(chan struct{}, 1), users: map[*QP]int{},
	}
	c.queue.News.Fire = c.news
	return c
}

// choose follows the options of CreateCQ.
func (c *CQ) choose(o []CQOptions) error {
	switch {
	case len(o) > 1:
		return fmt.Errorf("%d CQOptions: give one", len(o))
	case len(o) == 0:
		return nil
	}
	c.context, c.channel, c.handler = o[0].Context, o[0].Channel, o[0].Handler
	if c.channel == nil {
		return nil
	}
	return c.channel.join(c)
}

// Context returns CQOptions.Context, or nil.
func (c *CQ) Context() any { return c.context }

// Number returns the CQ's number in `stag show cqs`. No two CQs of the adapter have the
// same number.
func (c *CQ) Number() uint32 { return c.number }

// Depth returns how many completions the CQ holds.
func (c *CQ) Depth() int {
	if c.distant != nil {
		return c.distant.poller.Cap()
	}
	return c.queue.Cap()
}

// ready reports whether Poll would find a completion.
func (c *CQ) ready() bool {
	if c.distant == nil {
		return c.queue.Ready()
	}
	c.polling.Lock()
	defer c.polling.Unlock()
	return !c.distant.closed && c.distant.poller.Ready()
}

// Poll moves completions into dst, oldest first, and returns their number. Poll costs a
// few memory accesses. With inline progress, a Poll that finds no completion also does
// the present work of the connections of the CQ's QPs. The place of each request in its
// queue, and the memory of the request, are free when Poll has returned its completion.
func (c *CQ) Poll(dst []Completion) int {
	n := c.take(dst)
	if n == 0 && c.runners.Load().visit() {
		n = c.take(dst)
	}
	return n
}

func (c *CQ) take(dst []Completion) int {
	c.polling.Lock()
	defer c.polling.Unlock()
	if c.mapped || c.adapter.left.Load() {
		return 0 // another process has the completions
	}
	if c.contexts.left != nil {
		c.forget()
	}
	if c.distant != nil {
		return c.adapter.through.poll(c.distant, dst)
	}
	return c.queue.Poll(dst)
}

// Next removes the oldest completion from the CQ and returns it. If the CQ is empty,
// Next waits as Wait does. Next returns a completion that is already there even if ctx
// has ended. If Next returns an error, the error is one of Wait's and no completion has
// been removed.
//
// The caller owns the completion. The caller then also owns the memory of its work
// request and of all earlier requests of the same queue (see PostSend). If the work
// request failed, Next returns no error: look at Completion.Status. Several goroutines
// may call Next, and each completion goes to one of them. Poll with a longer slice
// costs less per completion.
func (c *CQ) Next(ctx context.Context) (Completion, error) {
	var got [1]Completion
	for c.Poll(got[:]) == 0 {
		if err := c.Wait(ctx); err != nil {
			return Completion{}, err
		}
	}
	return got[0], nil
}

// Wait sleeps until there is a completion to poll. With inline progress Wait first does
// the connections' work for a short time (Config.Spin). If several goroutines wait,
// another one may poll the completion first. Poll can therefore find nothing after
// Wait. Wait returns the cause of ctx's end, or ErrClosed. Wait returns ErrCQOverrun
// when a completion has been lost and no completion is left to poll.
func (c *CQ) Wait(ctx context.Context) error {
	if !c.mapped && !c.adapter.left.Load() && c.look(ctx) {
		return nil
	}
	return c.wait(ctx, false)
}

// WaitSolicited sleeps until a completion comes that is solicited or has failed.
// WaitSolicited returns at once if there is already any completion to poll. The caller
// must therefore poll all completions before the call.
func (c *CQ) WaitSolicited(ctx context.Context) error { return c.wait(ctx, true) }

// look does the connections' work for the time of waitSpin. look reports whether there
// is a completion to poll.
func (c *CQ) look(ctx context.Context) bool {
	if c.ready() {
		return true
	}
	m := c.runners.Load()
	if m == nil {
		return c.distant != nil && c.lookShortly(ctx)
	}
	end := clock.Now().Add(c.adapter.waitSpin())
	for m != nil && !m.awake() && clock.Now() < end {
		m.visit()
		if c.ready() {
			return true
		}
		if c.closing.Load() || ctx.Err() != nil {
			break
		}
		m = c.runners.Load() // a connection that moves changes the list
	}
	return false
}

func (c *CQ) wait(ctx context.Context, solicitedOnly bool) error {
	if c.mapped {
		return fmt.Errorf("wait for a completion: %w", ErrMapped)
	}
	for {
		wake := c.sleeper()
		if c.adapter.left.Load() {
			return fmt.Errorf("wait for a completion: %w", ErrHandedOver)
		}
		if c.ready() {
			return nil
		}
		switch {
		case c.adapter.through != nil && c.adapter.through.gone.Load() && c.adapter.device.Life().Err() == nil:
			return fmt.Errorf("wait for a completion: %w", ErrDaemonGone)
		case c.closing.Load() || c.adapter.device.Life().Err() != nil:
			return fmt.Errorf("wait for a completion: the CQ is %w", ErrClosed)
		case c.Overrun():
			return fmt.Errorf("wait for a completion: %w", ErrCQOverrun)
		}
		c.Arm(solicitedOnly)
		if c.ready() {
			return nil
		}
		select {
		case <-wake:
			if c.ready() && !c.adapter.left.Load() {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.adapter.device.Life().Done():
		}
	}
}

// sleeper returns a channel that the next call of news closes.
func (c *CQ) sleeper() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return c.wake
}

// Arm asks for one message on Notify when the next completion comes. With solicitedOnly
// it asks for a message when the next solicited or failed completion comes. A
// completion from before the call causes no message. The caller must therefore poll
// once more between Arm and sleep.
func (c *CQ) Arm(solicitedOnly bool) {
	if c.mapped {
		return // the other process arms the CQ in its memory
	}
	if c.distant != nil {
		c.armDistant(solicitedOnly)
		return
	}
	c.queue.Arm(solicitedOnly)
	c.runners.Load().watch()
}

// Notify returns the channel on which an armed CQ sends its message, for use in a
// select. A message may be left over from an earlier Arm, or from Waits. The caller
// must poll the CQ after every message, and may find no completion.
func (c *CQ) Notify() <-chan struct{} { return c.notify }

// Overrun reports whether a completion has been lost because the CQ was full. Once
// true, it stays true. The completions in the CQ can still be polled. The CQ's QPs are
// in error.
func (c *CQ) Overrun() bool {
	if c.distant == nil {
		return c.queue.Overrun()
	}
	c.polling.Lock()
	defer c.polling.Unlock()
	return !c.distant.closed && c.distant.poller.Overrun()
}

// news runs after a step in which an armed CQ got the completion that it was armed for.
// news also runs after a step in which the CQ was overrun. news does not block.
func (c *CQ) news() {
	c.adapter.telling.Add(1)
	defer c.adapter.telling.Add(-1)
	if c.adapter.frozen.Load() {
		return // a handler may poll, which would wait; release calls news again
	}
	select {
	case c.notify <- struct{}{}:
	default:
	}
	if c.channel != nil {
		c.channel.add(c)
	}
	if c.handler != nil {
		c.handler()
	}
	c.mu.Lock()
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
	var doomed []*QP
	if c.Overrun() && !c.told {
		c.told = true
		for qp := range c.users {
			doomed = append(doomed, qp)
		}
		c.adapter.events.add(Event{Type: CQOverrun, CQ: c, Err: ErrCQOverrun})
	}
	c.mu.Unlock()
	for _, qp := range doomed {
		qp.doom(ErrCQOverrun)
	}
}

// join counts one more use of the CQ by qp.
func (c *CQ) join(qp *QP) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.adapter != qp.adapter:
		return fmt.Errorf("the CQ is another adapter's")
	case c.closed:
		return fmt.Errorf("the CQ is %w", ErrClosed)
	case c.Overrun() && c.adapter.inherits == nil: // a QP of another process used it already
		return ErrCQOverrun
	}
	c.users[qp]++
	c.contexts.add(qp)
	return nil
}

func (c *CQ) leave(qp *QP) {
	c.mu.Lock()
	c.users[qp]--
	last := c.users[qp] <= 0
	if last {
		delete(c.users, qp)
	}
	c.mu.Unlock()
	if last {
		c.depart(qp)
	}
}

// Close closes the CQ. Every Wait returns. Close returns ErrInUse while QPs use the CQ.
// Close may be called twice, and after the adapter's Close.
func (c *CQ) Close() error {
	defer c.adapter.still()()
	c.mu.Lock()
	if n := len(c.users); n != 0 {
		c.mu.Unlock()
		return fmt.Errorf("close CQ: %w by %d QPs: close them first", ErrInUse, n)
	}
	c.closed = true
	c.closing.Store(true)
	c.mu.Unlock()
	if c.channel != nil {
		c.channel.leave(c)
	}
	c.adapter.mu.Lock()
	delete(c.adapter.cqs, c)
	c.adapter.mu.Unlock()
	c.news()
	if c.distant != nil {
		return c.adapter.through.closeCQ(c)
	}
	return nil
}
