package nic

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Flows follow the kernel's routes from one interface of the adapter to another. Programs
// such as keepalived, routing daemons, network managers and operators decide by them.

// shiftsAtOnce limits how many connections move from one interface at a time. Each of them
// may wait for a next hop.
const shiftsAtOnce = 256

// followAgain is how soon connections that could not follow their route try again.
const followAgain = time.Second

// shiftQueue carries connections that must move to the goroutine that moves them.
type shiftQueue struct {
	mu    sync.Mutex
	list  []shiftOrder
	ready chan struct{} // holds one token while list is not empty
}

// shiftOrder is a connection that must move.
type shiftOrder struct {
	flow *Flow
	to   *NIC
	how  Shift
}

func newShiftQueue() *shiftQueue { return &shiftQueue{ready: make(chan struct{}, 1)} }

func (q *shiftQueue) add(flows []*Flow, to *NIC, how Shift) {
	q.mu.Lock()
	for _, f := range flows {
		q.list = append(q.list, shiftOrder{f, to, how})
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *shiftQueue) take() []shiftOrder {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// divert lets flows follow their route to another interface of the adapter. If the route
// leads elsewhere, divert calls Config.Diverted.
func (n *NIC) divert(flows []*Flow, why error) {
	if e, ok := errors.AsType[*elsewhere](why); ok {
		if to := n.set.at(e.out); to != nil {
			if to != n && !to.Barred() { // n itself: the bond uses it again
				n.shifts.add(flows, to, Shift{Cause: n.causeOfRoute()})
			}
			return
		}
		if e.forced {
			return
		}
	}
	if n.cfg.Diverted != nil {
		n.cfg.Diverted(flows, why)
	}
}

// causeOfRoute returns the cause of a move that follows a route.
func (n *NIC) causeOfRoute() Cause {
	if n.down.Load() {
		return CauseCarrier
	}
	return CauseRoute
}

// shift moves the connections of the queue until ctx ends.
func (n *NIC) shift(ctx context.Context) {
	room := make(chan struct{}, shiftsAtOnce)
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.shifts.ready:
		}
		for _, o := range n.shifts.take() {
			select {
			case <-ctx.Done():
				return
			case room <- struct{}{}:
			}
			n.running.Go(func() {
				defer func() { <-room }()
				if err := o.flow.MoveTo(ctx, o.to, o.how); err != nil && !hasEnded(err) {
					n.followLater()
				}
			})
		}
	}
}

// followLater makes the surveyor report diverted flows again after followAgain.
func (n *NIC) followLater() {
	if n.again.CompareAndSwap(false, true) {
		time.AfterFunc(followAgain, func() {
			n.again.Store(false)
			n.hops.askAgain()
		})
	}
}

// Bar keeps connections from moving to this interface, until Unbar for the same reason.
func (n *NIC) Bar(why Bar) { n.barred.Or(uint32(why)) }

// Unbar takes a reason away. If it was the last one, connections whose route leads through
// this interface come.
func (n *NIC) Unbar(why Bar) {
	if before := n.barred.And(^uint32(why)); before == 0 || before&^uint32(why) != 0 {
		return
	}
	n.attract()
}

// attract lets connections of other interfaces come whose route leads through this one.
func (n *NIC) attract() {
	for _, other := range n.set.list() {
		if other != n {
			other.hops.askAgain()
		}
	}
}

// Barred reports whether connections are kept from moving to this interface.
func (n *NIC) Barred() bool { return n.barred.Load() != 0 }

// BarredBy reports whether connections are kept from moving here for a reason.
func (n *NIC) BarredBy(why Bar) bool { return n.barred.Load()&uint32(why) != 0 }

// Lost reports whether the interface is lost for good, or is being closed.
func (n *NIC) Lost() bool { return n.life.Err() != nil }

// Down reports whether the interface has no carrier, or is lost.
func (n *NIC) Down() bool { return n.down.Load() }

// evacuateWait is how long a connection of a lost interface waits for the next hop at
// another interface before it moves without one.
const evacuateWait = 500 * time.Millisecond

// evacuate moves the connections of an interface that is lost to other interfaces: each to
// the one through which the kernel's route leads, or else to any that works.
func (n *NIC) evacuate() {
	var moves sync.WaitGroup
	room := make(chan struct{}, shiftsAtOnce)
	for _, f := range n.Flows() {
		to, routed := n.refuge(f)
		if to == nil {
			continue
		}
		how := Shift{Cause: CauseLost, Forced: !routed && f.query.Device == 0, Blind: true, Wait: evacuateWait}
		room <- struct{}{}
		moves.Go(func() {
			defer func() { <-room }()
			_ = f.MoveTo(context.Background(), to, how) // lose ends a connection that has not moved
		})
	}
	moves.Wait()
}

// refuge returns the interface to which a connection goes when n is lost. routed says that
// the kernel's route leads there. refuge returns nil if there is no interface.
func (n *NIC) refuge(f *Flow) (best *NIC, routed bool) {
	if r, err := n.net.Next(f.query); err == nil {
		if to := n.set.at(r.OutIf); to != nil && to != n && !to.Barred() {
			return to, true
		}
	}
	for _, to := range n.set.list() {
		if to == n || to.life.Err() != nil || to.Barred() {
			continue
		}
		if best == nil || best.down.Load() && !to.down.Load() {
			best = to
		}
	}
	return best, false
}
