package rdma

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
)

// Progress says who moves octets between QPs and the wire.
type Progress uint8

const (
	// ProgressAuto leaves the choice to Open.
	ProgressAuto Progress = iota

	// ProgressEngine has goroutines do it: one for each receive queue of a port,
	// locked to a thread, or one for each connection over the kernel's TCP. Posts
	// wake them, and they wake who waits.
	ProgressEngine

	// ProgressInline has the program's own goroutines do it, within posts to the
	// send queue, Polls that find nothing, and Waits: nothing that they post or
	// wait for needs another thread. The goroutines are there all the same, and
	// take over what nobody polls for, when a Wait or an Arm says that nobody
	// will, or some milliseconds after the last Poll. They mind every deadline in
	// any case.
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

// inlineSpin is for how long a Wait looks, when Config.Spin is 0.
const inlineSpin = 20 * time.Microsecond

// progress is what Open has chosen.
func (a *Adapter) progress() Progress {
	if a.device.Inline() {
		return ProgressInline
	}
	return ProgressEngine
}

// waitSpin is for how long a Wait does.
func (a *Adapter) waitSpin() time.Duration {
	if a.cfg.Spin == 0 {
		return inlineSpin
	}
	return a.cfg.Spin
}

// runners are those of a CQ's QPs. Lists are never changed, but replaced.
type runners []adapter.Runner

// mostRunners is how many a CQ can have for its users to run them. A Poll of more,
// which are connections over the kernel's TCP, would take too long: they are left
// to their own goroutines, as with ProgressEngine.
const mostRunners = 8

// visit lets all of them work, and reports whether there are any.
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

// awake reports whether all of them work by themselves: to join in would cost
// more than it brings.
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

// drive adds n users to a runner of the CQ, or takes them away.
func (c *CQ) drive(m adapter.Runner, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driven == nil {
		c.driven = map[adapter.Runner]int{}
	}
	if c.driven[m] += n; c.driven[m] <= 0 {
		delete(c.driven, m)
	}
	if len(c.driven) == 0 || len(c.driven) > mostRunners {
		c.runners.Store(nil)
		return
	}
	list := runners(slices.Collect(maps.Keys(c.driven)))
	c.runners.Store(&list)
}

// attach lets the QP's CQs work for its connection.
func (qp *QP) attach(m adapter.Runner) {
	if m != nil {
		qp.cfg.SendCQ.drive(m, 1)
		qp.cfg.RecvCQ.drive(m, 1)
	}
}

// detach is the end of that.
func (qp *QP) detach() {
	if c := qp.conn.Load(); c != nil && c.Runner() != nil {
		qp.cfg.SendCQ.drive(c.Runner(), -1)
		qp.cfg.RecvCQ.drive(c.Runner(), -1)
	}
}
