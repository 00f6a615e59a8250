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
	// RingSilently rings without waking anybody. The caller must visit the
	// carrier's runner next.
	RingSilently()
}

var (
	_ Carrier = (*nic.Flow)(nil)
	_ Carrier = (*kernelport.Conn)(nil)
)

// counting is a carrier that has TCP counters of its own. Those of a connection
// over the kernel's TCP are the kernel's.
type counting interface {
	Stats(ctx context.Context) (tcp.Stats, error)
}

// interruptible is a carrier that no engine runs. Between runs fn between two of its
// steps.
type interruptible interface{ Between(fn func()) }

// Runner runs the steps of connections: an engine, or a connection over the
// kernel's TCP. Any goroutine may call it, holding no lock of an adapter or of a layer.
type Runner interface {
	// Visit does the work that there is now.
	Visit(now clock.Instant)
	// Awake reports whether the runner's own goroutine is at work.
	Awake() bool
	// Watch says that the caller goes to sleep.
	Watch()
}

// Conn is a connection that was taken over. It does not change, and is safe for
// concurrent use.
type Conn struct {
	carrier Carrier
	runner  Runner        // of carrier; nil unless progress is inline
	port    *Port         // nil: the kernel's
	flow    engine.FlowID // of the port; 0: none
}

// Wake wakes the connection's runner, and makes it watch for what the peer sends. It
// is for everything but posts.
func (c *Conn) Wake() {
	c.carrier.Ring()
	if c.runner != nil {
		c.runner.Watch()
	}
}

// Post does the work that there is after something was posted, if inline is set and
// progress is inline. Otherwise it wakes the runner.
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

// Runner runs the connection's steps for the program's goroutines. It is nil unless
// progress is inline. Several connections may have the same one.
func (c *Conn) Runner() Runner { return c.runner }

// Carrier is what carries the connection.
func (c *Conn) Carrier() Carrier { return c.carrier }

// Device is what reports call the port of the connection.
func (c *Conn) Device() string {
	if c.port == nil {
		return report.KernelDevice
	}
	return c.port.name
}

// Flow is the id of the flow at the port. It is 0 for a connection over the kernel's
// TCP.
func (c *Conn) Flow() engine.FlowID { return c.flow }

// flowID is the flow of an engine that the connection is. ok is false if no engine
// runs it.
func (c *Conn) flowID() (f flowOf, ok bool) {
	if c == nil || c.port == nil {
		return flowOf{}, false
	}
	return flowOf{c.port, c.flow}, true
}
