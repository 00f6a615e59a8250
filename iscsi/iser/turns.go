package iser

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/report"
)

// turns lets goroutines take turns at the steps of a connection. Nobody waits for a step:
// the goroutine that makes one makes those that others ask for meanwhile.
type turns struct {
	device *adapter.Adapter
	step   func(now clock.Instant)
	due    atomic.Int32 // calls of Wake whose step is not done; the goroutine of the first one steps
}

// Wake makes a step. If another goroutine is making one, that makes another.
func (x *turns) Wake() {
	if x.due.Add(1) != 1 {
		return
	}
	x.step(clock.Now())
	x.leave()
}

// Between runs f between two steps.
func (x *turns) Between(f func()) {
	x.enter()
	f()
	x.leave()
}

// enter waits for the end of the present step. No step begins before leave.
func (x *turns) enter() {
	for x.due.Add(1) != 1 { // the goroutine that steps goes on until nobody has come
		x.due.Add(-1)
		time.Sleep(10 * time.Microsecond)
	}
}

// leave makes the steps that goroutines have asked for since enter.
func (x *turns) leave() {
	for n := int32(1); !x.due.CompareAndSwap(n, 0); {
		n = x.due.Load()
		x.step(clock.Now())
	}
	x.device.Board().Deliver()
}

// device returns the name that reports give to the port of the connection.
func (ch *Channel) device() string {
	if name, _, port := strings.Cut(ch.qp.Conn().Path, ":"); port {
		return name
	}
	return report.KernelDevice
}
