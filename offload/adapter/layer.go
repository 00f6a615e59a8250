package adapter

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/report"
)

// Layer is an upper layer on an adapter: what the adapter closes, and what it
// reports. Both are called from Open on.
type Layer interface {
	Closer
	Reporter
}

// Closer is a layer, as the adapter's Close sees it.
type Closer interface {
	// CloseConnections ends every connection of the layer, and all that waits for
	// one. It returns when no step of them runs any more. Use fails already, and
	// the layer makes nothing new afterwards.
	CloseConnections()
}

// Reporter is a layer, as reports and captures see it. It is called by several
// goroutines.
type Reporter interface {
	// Connections lists the layer's connections as they are now, also those that
	// are still to be made.
	Connections() []Connection
	// Snapshot begins a report.
	Snapshot() Snapshot
}

// Snapshot is the part of one report that a layer has to say.
type Snapshot interface {
	// Connections lists the connections whose Look is to be called.
	Connections() []Connection
	// Describe adds the layer's objects, and its counters by device. The devices
	// are in r, and every connection has been looked at. r.Counts is nil unless
	// counts are asked for.
	Describe(r *report.Engine, parts report.Parts)
	// Counters are the layer's counters that belong to no device.
	Counters() []report.Counter
}

// Connection is what an adapter knows of a layer's connection.
type Connection struct {
	Conn          *Conn          // nil: it has not been taken over
	Local, Remote netip.AddrPort // zero until it is about to be taken over
	Stream        report.Stream  // what the ends have agreed on; the adapter fills in Device and Flow
	Ended         bool           // no step of it runs any more
	Look          func()         // reads what belongs to its steps, between two of them; nil outside of reports
}
