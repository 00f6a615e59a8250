package rdma

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
)

// Progress says which goroutines move octets between QPs and the wire.
type Progress uint8

const (
	// ProgressAuto lets Open choose.
	ProgressAuto Progress = iota

	// ProgressEngine uses goroutines of the adapter: one for each receive queue of a port,
	// locked to a thread, or one for each connection over the kernel's TCP. Posts wake
	// these goroutines. These goroutines wake the goroutines that wait for completions.
	ProgressEngine

	// ProgressInline uses the program's own goroutines. They do the work within posts to
	// the send queue, Polls that find nothing, and Waits, so that posting and waiting need
	// no other thread. The adapter's goroutines exist too. The adapter's goroutines take
	// over when a Wait or an Arm says that the program sleeps, or some milliseconds after
	// the last Poll. The adapter's goroutines serve every deadline in any case.
	ProgressInline
)

func (p Progress) String() string {
	switch p {
	case ProgressAuto:
		return "auto"
	case ProgressEngine:
		return "engine"
	case ProgressInline:
		return "inline"
	}
	return fmt.Sprintf("progress %d", uint8(p))
}

// inlineSpin is how long a Wait looks for completions before it sleeps if Config.Spin is 0.
const inlineSpin = 20 * time.Microsecond

// progress returns the mode that Open has chosen.
func (a *Adapter) progress() Progress {
	if a.device.Inline() {
		return ProgressInline
	}
	return ProgressEngine
}

// waitSpin returns how long a Wait looks for completions before it sleeps.
func (a *Adapter) waitSpin() time.Duration {
	if a.cfg.Spin == 0 {
		return inlineSpin
	}
	return a.cfg.Spin
}

// runners are the runners of a CQ's QPs. A list never changes. A change makes a new list.
type runners []adapter.Runner

// mostRunners is the largest number of runners that the users of a CQ run themselves. More
// runners, usually connections over the kernel's TCP, would make a Poll too slow. Such
// runners run in their own goroutines, as with ProgressEngine.
const mostRunners = 8

// visit calls Visit of each runner. visit reports whether there are any runners.
func (m *runners) visit() bool {
	if m == nil {
		return false
	}
	now := clock.Now()
	for _, x := range *m {
		x.Visit(now)
	}
	return true
}

// awake reports whether the goroutines of all runners are at work. If the caller did the
// work as well, it would slow these goroutines down more than it helps.
func (m *runners) awake() bool {
	for _, x := range *m {
		if !x.Awake() {
			return false
		}
	}
	return true
}

func (m *runners) watch() {
	if m == nil {
		return
	}
	for _, x := range *m {
		x.Watch()
	}
}

// drive adds n to a count for m: the send and receive queues that m runs and that complete
// to this CQ. n may be negative. The users of the CQ run m themselves while that count is
// positive, the CQ has at most mostRunners runners, and neither a handler nor another process
// gets its completions.
func (c *CQ) drive(m adapter.Runner, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driven == nil {
		c.driven = map[adapter.Runner]int{}
	}
	if c.driven[m] += n; c.driven[m] <= 0 {
		delete(c.driven, m)
	}
	if len(c.driven) == 0 || len(c.driven) > mostRunners || c.handler != nil || c.mapped {
		c.runners.Store(nil)
		return
	}
	list := runners(slices.Collect(maps.Keys(c.driven)))
	c.runners.Store(&list)
}

// follow makes the QP's CQs run the runner that the connection has now. The QP calls follow
// when it gets its connection, and after each move of the connection.
func (qp *QP) follow() {
	c := qp.conn.Load()
	if c == nil {
		return // the QP calls follow again when it gets the connection
	}
	qp.driving.Lock()
	defer qp.driving.Unlock()
	if m := c.Runner(); m != nil && !qp.detached && m != qp.runner {
		qp.drive(m, 1)
		qp.drive(qp.runner, -1)
		qp.runner = m
		m.Watch() // a goroutine that sleeps has called Watch of the previous runner only
	}
}

// detach removes the connection's runner from the QP's CQs for good.
func (qp *QP) detach() {
	qp.driving.Lock()
	defer qp.driving.Unlock()
	qp.drive(qp.runner, -1)
	qp.runner, qp.detached = nil, true
}

// drive calls CQ.drive for the send queue's CQ and the receive queue's CQ, which may be
// the same. If m is nil, drive does nothing.
func (qp *QP) drive(m adapter.Runner, n int) {
	if m != nil {
		qp.cfg.SendCQ.drive(m, n)
		qp.cfg.RecvCQ.drive(m, n)
	}
}
