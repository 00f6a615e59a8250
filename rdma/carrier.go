package rdma

import (
	"context"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
)

// carrier moves the octets of a connection between its ULP and the peer.
type carrier interface {
	// Ring makes whoever runs the carrier call the ULP's Transmit.
	Ring()
	// RingSilently rings without waking anybody. The caller must visit the
	// carrier's runner next.
	RingSilently()
}

var (
	_ carrier = (*nic.Flow)(nil)
	_ carrier = (*kernelport.Conn)(nil)
)

// counting is a carrier that has TCP counters of its own. Those of a connection
// over the kernel's TCP are the kernel's.
type counting interface {
	Stats(ctx context.Context) (tcp.Stats, error)
}

// interruptible is a carrier that no engine runs: it is asked by itself, between
// two of its steps.
type interruptible interface{ Between(fn func()) }

// runner runs the steps of connections: an engine, or a connection over the
// kernel's TCP. Any goroutine may call it, holding no lock of this package.
type runner interface {
	// Visit does the work that there is now.
	Visit(now clock.Instant)
	// Awake reports whether the runner's own goroutine is at work.
	Awake() bool
	// Watch says that the caller goes to sleep.
	Watch()
}

// line is a connection that was taken over. It does not change.
type line struct {
	carrier carrier
	runner  runner        // of carrier; nil unless progress is inline
	port    *port         // nil: the kernel's
	flow    engine.FlowID // of the port; 0: none
}

// wake wakes whoever runs the connection, and watches what the peer says to it. It
// is for everything but posts.
func (l *line) wake() {
	l.carrier.Ring()
	if l.runner != nil {
		l.runner.Watch()
	}
}

// post does what there is to do for what was posted, or wakes who does.
func (l *line) post(inline bool) {
	if l.runner == nil || !inline {
		l.wake()
		return
	}
	l.carrier.RingSilently()
	if !l.runner.Awake() {
		l.runner.Visit(clock.Now())
	}
}

// device is what reports call the port of the connection.
func (l *line) device() string {
	if l.port == nil {
		return report.KernelDevice
	}
	return l.port.name
}

// flowID is the flow of an engine that the connection is. ok is false if no engine
// runs it.
func (l *line) flowID() (f flowOf, ok bool) {
	if l.port == nil {
		return flowOf{}, false
	}
	return flowOf{l.port, l.flow}, true
}
