package adapter

import (
	"context"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Carrier moves the octets of a connection between its ULP and the peer.
type Carrier interface {
	// Ring makes the runner of the carrier call the ULP's Transmit.
	Ring()
	// RingSilently rings without waking the runner. The caller must visit the carrier's
	// runner next.
	RingSilently()
}

var (
	_ Carrier = (*nic.Flow)(nil)
	_ Carrier = (*kernelport.Conn)(nil)
)

// counting is a carrier that has TCP counters of its own. For a connection over the
// kernel's TCP, only the kernel has TCP counters.
type counting interface {
	Stats(ctx context.Context) (tcp.Stats, error)
}

// interruptible is a carrier that no engine runs. Between runs fn between two steps of
// the carrier.
type interruptible interface{ Between(fn func()) }

// Runner runs the steps of connections. A Runner is an engine, or a connection over the
// kernel's TCP. Any goroutine may call a Runner if it holds no lock of an adapter or of
// a layer.
type Runner interface {
	// Visit does the work that is there now.
	Visit(now clock.Instant)
	// Awake reports whether the runner's own goroutine runs.
	Awake() bool
	// Watch tells the runner that the calling goroutine is going to sleep. The runner
	// then watches for arrivals itself.
	Watch()
}

// Conn is a connection that was taken over. A Conn does not change. It is safe for
// concurrent use.
type Conn struct {
	carrier Carrier
	runner  Runner        // runner of the carrier; nil unless progress is inline
	port    *Port         // port of the connection; nil: the kernel's TCP
	flow    engine.FlowID // flow at the port; 0: none
}

// Wake wakes the connection's runner and makes the runner watch for octets from the
// peer. After a post, callers use Post instead.
func (c *Conn) Wake() {
	c.carrier.Ring()
	if c.runner != nil {
		c.runner.Watch()
	}
}

// Post tells the runner that a work request was posted. If inline is set and progress
// is inline, the calling goroutine does the work itself. Otherwise Post wakes the
// runner.
func (c *Conn) Post(inline bool) {
	if c.runner == nil || !inline {
		c.Wake()
		return
	}
	c.carrier.RingSilently()
	if !c.runner.Awake() {
		c.runner.Visit(clock.Now())
	}
}

// Runner returns the runner with which the program's goroutines run the connection's
// steps. It returns nil unless progress is inline. Several connections may have the
// same runner.
func (c *Conn) Runner() Runner { return c.runner }

// Carrier returns the carrier of the connection.
func (c *Conn) Carrier() Carrier { return c.carrier }

// Device returns the name that reports give to the port of the connection.
func (c *Conn) Device() string {
	if c.port == nil {
		return report.KernelDevice
	}
	return c.port.name
}

// Flow returns the id of the flow at the port, or 0 for a connection over the kernel's
// TCP.
func (c *Conn) Flow() engine.FlowID { return c.flow }

// flowID returns the engine's flow that carries the connection. ok is false if no
// engine runs the connection.
func (c *Conn) flowID() (f flowOf, ok bool) {
	if c == nil || c.port == nil {
		return flowOf{}, false
	}
	return flowOf{c.port, c.flow}, true
}
