package iscsi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
)

// nap is the sleep of a goroutine that waits for a completion, and does the work of the
// connection meanwhile. Without it each arrival would wake the connection's goroutine, which
// would wake the one that waits. Only one goroutine naps at a time.
type nap struct {
	ready  func() bool // whether to end the sleep
	asleep atomic.Bool // a goroutine naps

	one  sync.Mutex // held by the goroutine that naps; guards the fields below
	ctx  context.Context
	stop func() bool // makes the end of ctx end no nap; nil: it does not
	x    *call       // the call that is waited for; nil for a Queue
}

// linked is a session, or one of its connections.
type linked interface{ link() link }

// inlineSpin is how long a goroutine looks for a completion before it sleeps, if the
// program's goroutines run the connections, the adapter's Config has no Spin, and the
// goroutine cannot wait for arrivals itself.
const inlineSpin = 20 * time.Microsecond

// spin returns how long a goroutine looks for a completion before it sleeps. r is the runner
// in which it can nap, or nil.
func (s *Session) spin(r adapter.Runner) time.Duration {
	spin := s.device.Config().Spin
	if _, naps := r.(adapter.Sleeper); naps || spin != 0 {
		return spin
	}
	return inlineSpin
}

// wait sleeps until ready or the end of ctx. It returns false if the goroutine must wait in
// another way: another one naps, or nothing has arrived for long.
func (n *nap) wait(ctx context.Context, of linked, x *call) bool {
	if !n.one.TryLock() {
		return false
	}
	defer n.one.Unlock()
	n.x = x
	n.asleep.Store(true)
	defer n.asleep.Store(false)
	n.follow(ctx, of)
	if x != nil { // the next call has another context
		defer n.forget()
	}
	for !n.ready() {
		r, ok := of.link().Runner().(adapter.Sleeper)
		if !ok || !r.Doze(n.ready) {
			return false
		}
		r.Visit(clock.Now())
	}
	return true
}

// follow makes the end of ctx end the nap. A context that comes again costs nothing.
func (n *nap) follow(ctx context.Context, of linked) {
	if n.ctx != nil && n.ctx.Done() == ctx.Done() {
		return
	}
	n.leave()
	if n.ctx = ctx; ctx.Done() != nil {
		n.stop = context.AfterFunc(ctx, func() { n.end(of) })
	}
}

// forget forgets the call and its context.
func (n *nap) forget() {
	n.x = nil
	n.leave()
}

// leave forgets the context.
func (n *nap) leave() {
	if n.stop != nil {
		n.stop()
	}
	n.ctx, n.stop = nil, nil
}

// close forgets the context of the last nap.
func (n *nap) close() {
	n.one.Lock()
	n.leave()
	n.one.Unlock()
}

// end ends a nap because there is a completion, or because its context has ended.
func (n *nap) end(of linked) {
	if !n.asleep.Load() {
		return
	}
	if r, ok := of.link().Runner().(adapter.Sleeper); ok {
		r.Nudge()
	}
}

// nap waits for the answer. It reports whether the connection needs no other goroutine that
// watches for arrivals.
func (x *call) nap(ctx context.Context, c *calls) bool {
	ended := c.naps.wait(ctx, c.c, x)
	if len(x.done) == 0 || !ended {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) == 0
}
