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
	// Ring makes the carrier's runner call the ULP's Transmit.
	Ring()
	// RingSilently rings without waking the runner. The caller must visit the carrier's
	// runner next.
	RingSilently()
}

var (
	_ Carrier = (*nic.Flow)(nil)
	_ Carrier = (*kernelport.Conn)(nil)
)

// counting is a carrier that has TCP counters of its own. The kernel has those of a
// connection over the kernel's TCP.
type counting interface {
	Stats(ctx context.Context) (tcp.Stats, error)
}

// interruptible is a carrier that no engine runs. Between runs fn between two of its
// steps.
type interruptible interface{ Between(fn func()) }

// Runner runs the steps of connections: it is an engine, or a connection over the
// kernel's TCP. Any goroutine may call it, but must hold no lock of an adapter or of a
// layer.
type Runner interface {
	// Visit does the work that is there now.
	Visit(now clock.Instant)
	// Awake reports whether the runner's own goroutine runs.
	Awake() bool
	// Watch tells the runner that the caller goes to sleep.
	Watch()
}

// Conn is a connection that was taken over. It does not change, and is safe for
// concurrent use.
type Conn struct {
	carrier Carrier
	runner  Runner        // carrier's runner; nil unless progress is inline
	port    *Port         // nil: the kernel's TCP
	flow    engine.FlowID // at the port; 0: none
}

// Wake wakes the connection's runner, and makes the runner watch for what the peer
// sends. Everything but a post uses Wake.
func (c *Conn) Wake() {
	c.carrier.Ring()
	if c.runner != nil {
		c.runner.Watch()
	}
}

// Post tells the runner that something was posted. If inline is set and progress is
// inline, the calling goroutine does the work itself. Otherwise Post wakes the runner.
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
