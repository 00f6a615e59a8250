package adapter

import (
	"net/netip"
	"sync"

	"github.com/stag-rdma/stag/offload/report"
)

// Layer is an upper layer on an adapter. The adapter closes the layer and reports it.
// The adapter may call both interfaces as soon as Open begins.
type Layer interface {
	Closer
	Reporter
}

// Closer is the part of a layer that the adapter's Close calls.
type Closer interface {
	// CloseConnections ends every connection of the layer, and every call that waits
	// for a connection. CloseConnections returns when no step of the connections runs
	// any more. Use already fails then, and the layer must make no new connection
	// afterwards.
	CloseConnections()
}

// Reporter is the part of a layer that reports and captures read. Several goroutines
// may call it at once.
type Reporter interface {
	// Connections lists the layer's current connections, including those that are being
	// made.
	Connections() []Connection
	// Snapshot begins a report.
	Snapshot() Snapshot
}

// laterLayers are layers that Open does not know. The program closes their connections.
type laterLayers struct {
	mu     sync.Mutex // guards the fields below; no engine takes it
	byKey  map[any]Reporter
	sorted []Reporter // in the order of their coming
}

// Extend returns the reporter of a layer that comes after Open. The first call with a key
// makes the reporter, which stays until Close. The layer must end its connections when
// Life ends.
func (a *Adapter) Extend(key any, make func() Reporter) Reporter {
	l := &a.later
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey[key] == nil {
		if l.byKey == nil {
			l.byKey = map[any]Reporter{}
		}
		l.byKey[key] = make()
		l.sorted = append(l.sorted, l.byKey[key])
	}
	return l.byKey[key]
}

// reporters returns the reporters of all layers.
func (a *Adapter) reporters() (all []Reporter) {
	for _, l := range a.layers {
		all = append(all, l)
	}
	a.later.mu.Lock()
	defer a.later.mu.Unlock()
	return append(all, a.later.sorted...)
}

// Snapshot is a layer's part of one report.
type Snapshot interface {
	// Connections lists the connections whose Look the adapter must call.
	Connections() []Connection
	// Describe adds the layer's objects, and its counters by device, to r. r already
	// contains the devices. The adapter has already called Look for every connection.
	// r.Counts is nil unless the caller asks for counts.
	Describe(r *report.Engine, parts report.Parts)
	// Counters returns the layer's counters that belong to no device.
	Counters() []report.Counter
}

// Connection is the adapter's description of a connection of a layer.
type Connection struct {
	Conn          *Conn          // connection after the take-over; nil: the connection has not been taken over
	Local, Remote netip.AddrPort // addresses; zero until the take-over is about to begin
	Stream        report.Stream  // result of the negotiation; the adapter fills in Device and Flow
	Ended         bool           // no step of the connection runs any more
	Look          func()         // reads, between two steps, the state that only steps may use; nil outside of reports
}
