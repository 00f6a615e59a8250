package adapter

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/report"
)

// Layer is an upper layer on an adapter: the adapter closes it and reports it. The
// adapter may call both interfaces as soon as Open begins.
type Layer interface {
	Closer
	Reporter
}

// Closer is the part of a layer that the adapter's Close calls.
type Closer interface {
	// CloseConnections ends every connection of the layer, and every call that waits
	// for one. It returns when no step of the connections runs any more. Use fails
	// already, and the layer makes nothing new afterwards.
	CloseConnections()
}

// Reporter is the part of a layer that reports and captures read. Several goroutines
// call it.
type Reporter interface {
	// Connections lists the layer's connections as they are now, including those that
	// are still to be made.
	Connections() []Connection
	// Snapshot begins a report.
	Snapshot() Snapshot
}

// Snapshot is a layer's part of one report.
type Snapshot interface {
	// Connections lists the connections whose Look is to be called.
	Connections() []Connection
	// Describe adds the layer's objects, and its counters by device. The devices are in
	// r, and every connection has been looked at. r.Counts is nil unless counts are
	// asked for.
	Describe(r *report.Engine, parts report.Parts)
	// Counters returns the layer's counters that belong to no device.
	Counters() []report.Counter
}

// Connection is what an adapter knows of a connection of a layer.
type Connection struct {
	Conn          *Conn          // nil: it has not been taken over
	Local, Remote netip.AddrPort // zero until it is about to be taken over
	Stream        report.Stream  // what the ends have agreed on; the adapter fills in Device and Flow
	Ended         bool           // no step of it runs any more
	Look          func()         // reads, between two steps, the state that belongs to the steps; nil outside of reports
}
