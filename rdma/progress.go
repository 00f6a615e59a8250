package rdma

import (
	"fmt"
	"runtime"
	"slices"
	"time"

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

// chooseProgress decides for Auto; queues is how many engines there are.
func (c *Config) chooseProgress(queues int) Progress {
	switch {
	case c.Progress != ProgressAuto:
		return c.Progress
	case c.Spin > 0 && queues < runtime.NumCPU():
		return ProgressEngine
	}
	return ProgressInline
}

// progress is what Open has chosen.
func (a *Adapter) progress() Progress {
	if a.inline {
		return ProgressInline
	}
	return ProgressEngine
}

// engineSpin is for how long an engine looks for more work.
func (a *Adapter) engineSpin() time.Duration {
	if a.inline {
		return 0
	}
	return a.cfg.Spin
}

// waitSpin is for how long a Wait does.
func (a *Adapter) waitSpin() time.Duration {
	if a.cfg.Spin == 0 {
		return inlineSpin
	}
	return a.cfg.Spin
}

// motor is what runs the steps of connections: an engine, or a connection over
// the kernel's TCP. Any goroutine may call it, holding no lock of this package.
type motor interface {
	// Visit does what there is to do now.
	Visit(now clock.Instant)
	// Awake reports whether its own goroutine is doing so.
	Awake() bool
	// Watch says that the caller goes to sleep.
	Watch()
}

// motors are those of a CQ's QPs, with how many of them each has. Lists are
// never changed, but replaced.
type motors []share

type share struct {
	motor
	users int
}

// visit lets all of them work, and reports whether there are any.
func (m *motors) visit() bool {
	if m == nil {
		return false
	}
	now := clock.Now()
	for _, s := range *m {
		s.Visit(now)
	}
	return true
}

// awake reports whether all of them work by themselves: to join in would cost
// more than it brings.
func (m *motors) awake() bool {
	for _, s := range *m {
		if !s.Awake() {
			return false
		}
	}
	return true
}

func (m *motors) watch() {
	if m == nil {
		return
	}
	for _, s := range *m {
		s.Watch()
	}
}

// change adds n users to a motor, which may be none, and leaves out what has
// none any more.
func (m *motors) change(to motor, n int) *motors {
	var list motors
	if m != nil {
		list = slices.Clone(*m)
	}
	i := slices.IndexFunc(list, func(s share) bool { return s.motor == to })
	if i < 0 {
		i, list = len(list), append(list, share{motor: to})
	}
	if list[i].users += n; list[i].users <= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}

// drive adds n users to a motor of the CQ.
func (c *CQ) drive(m motor, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.motors.Store(c.motors.Load().change(m, n))
}

// attach lets the QP's CQs work for its connection.
func (qp *QP) attach(m motor) {
	if m != nil {
		qp.cfg.SendCQ.drive(m, 1)
		qp.cfg.RecvCQ.drive(m, 1)
	}
}

// detach is the end of that.
func (qp *QP) detach() {
	if l := qp.line.Load(); l != nil && l.motor != nil {
		qp.cfg.SendCQ.drive(l.motor, -1)
		qp.cfg.RecvCQ.drive(l.motor, -1)
	}
}

// steps is what runs the line's connection.
func (l *line) steps() motor {
	if l.kernel != nil {
		return l.kernel
	}
	return l.flow.Engine()
}
