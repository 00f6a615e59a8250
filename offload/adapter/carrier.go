package adapter

import (
	"context"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/visits"
)

// Carrier moves the octets of a connection between its ULP and the peer.
type Carrier interface {
	// Ring makes the runner of the carrier call the ULP's Transmit.
	Ring()
	// RingSilently rings without waking the carrier's runner, and returns the runner.
	// The caller must visit that runner next.
	RingSilently() Runner
	// Runner returns the runner of the carrier. A flow that moves gets another runner.
	Runner() Runner
}

// kernelCarrier is a connection over the kernel's TCP. The connection is its own runner.
type kernelCarrier struct{ *kernelport.Conn }

// RingSilently implements Carrier.
func (k kernelCarrier) RingSilently() Runner {
	k.Conn.RingSilently()
	return k.Conn
}

// Runner implements Carrier.
func (k kernelCarrier) Runner() Runner { return k.Conn }

var (
	_ Carrier = (*nic.Flow)(nil)
	_ Carrier = kernelCarrier{}
)

// counting is a carrier that has TCP counters of its own. For a connection over the
// kernel's TCP, only the kernel has TCP counters.
type counting interface {
	Stats(ctx context.Context) (tcp.Stats, error)
}

// interruptible is a carrier that no engine runs. Between runs fn between two steps of
// the carrier.
type interruptible interface{ Between(fn func()) }

// Runner runs the steps of connections.
type Runner = visits.Runner

// Sleeper is a Runner in which a visitor can wait for arrivals.
type Sleeper = visits.Sleeper

// Conn is a connection that was taken over. A Conn does not change, but its port may. A
// Conn is safe for concurrent use.
type Conn struct {
	carrier Carrier
	adapter *Adapter
	flow    *nic.Flow // flow of the connection; nil: the kernel's TCP
	inline  bool      // progress is inline
}

// Wake wakes the connection's runner and makes the runner watch for octets from the
// peer. After a post, callers use Post instead.
func (c *Conn) Wake() {
	c.carrier.Ring()
	if c.inline {
		c.carrier.Runner().Watch()
	}
}

// Post tells the runner that a work request was posted. If inline is set and progress
// is inline, the calling goroutine does the work itself. Otherwise Post wakes the
// runner.
func (c *Conn) Post(inline bool) {
	if !c.inline || !inline {
		c.Wake()
		return
	}
	if r := c.carrier.RingSilently(); !r.Awake() {
		r.Visit(clock.Now())
	}
}

// Runner returns the runner with which the program's goroutines run the connection's
// steps. Runner returns nil unless progress is inline. Several connections may have the
// same runner. A connection that moves gets another runner: see TakeOver.Moved.
func (c *Conn) Runner() Runner {
	if !c.inline {
		return nil
	}
	return c.carrier.Runner()
}

// Carrier returns the carrier of the connection.
func (c *Conn) Carrier() Carrier { return c.carrier }

// PeerClosed reports whether the peer has closed its direction. Over the kernel's TCP the ULP
// may hear of it later. An engine has told the ULP, or does so in the next step: PeerClosed
// returns false.
func (c *Conn) PeerClosed() bool {
	k, ok := c.carrier.(kernelCarrier)
	return ok && k.PeerClosed()
}

// Device returns the name that reports give to the present port of the connection.
func (c *Conn) Device() string {
	if c.flow == nil {
		return report.KernelDevice
	}
	return c.adapter.portOf(c.flow.NIC()).name
}

// Flow returns the id of the flow, or 0 for a connection over the kernel's TCP.
func (c *Conn) Flow() engine.FlowID {
	if c.flow == nil {
		return 0
	}
	return c.flow.ID()
}

// flowID returns the engine's flow that carries the connection, and its present port.
// ok is false if no engine runs the connection.
func (c *Conn) flowID() (f flowOf, ok bool) {
	if c == nil || c.flow == nil {
		return flowOf{}, false
	}
	return flowOf{c.adapter.portOf(c.flow.NIC()), c.flow.ID()}, true
}
