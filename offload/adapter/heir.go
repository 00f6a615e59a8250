package adapter

import (
	"context"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
)

// Heir is a Layer whose objects and connections can continue in another process. The
// adapter calls the first group of methods in the old process, and the second group in the
// new one. Each process calls the methods one after the other.
//
//	old process                          new process
//	Freeze
//	  connections leave their engines
//	ULP.Export, once for each connection
//	ExportLayer                          ImportLayer
//	                                     ImportULP, once for each connection
//	  the point of no return
//	                                       connections are installed
//	                                     Installed, once for each connection
//	Left                                 Opened
//
// If anything fails before the point of no return, the old process calls Thaw and its
// connections run on. The new process then calls Dropped, and no method afterwards.
type Heir interface {
	Layer

	// Freeze stops the program from changing the layer: calls that would change an object
	// wait until Thaw or Left. It waits for calls that have begun, and for connections that
	// are being made, until ctx ends. After an error nothing is frozen.
	Freeze(ctx context.Context) error
	// ExportLayer returns the objects that do not belong to one connection, such as
	// protection domains, regions and completion queues, and which connection belongs to
	// what. It names connections by the flow id in this process (Conn.Flow). It changes
	// nothing.
	ExportLayer(now clock.Instant) (portable.Object, error)
	// Thaw ends Freeze. Everything continues in this process.
	Thaw()
	// Left says that the new process has everything. Each ULP has got a Fault with
	// portable.ErrUpgraded. Calls that wait, and all later calls, fail with that error.
	Left()

	// ImportLayer makes the objects of the old process's ExportLayer on the adapter a, which
	// Succeed has not returned yet. The adapter's table
	// and heap are those of the old process (Adapter.Table, Adapter.Heap): entries keep
	// their place and key, and octets keep their offset in the heap, but not their address.
	ImportLayer(a *Adapter, now clock.Instant, o portable.Object) error
	// ImportULP makes the upper layer of a connection. id is the connection's flow id in the
	// old process. The upper layer must not use anything of the connection before Installed.
	// An object of another layer is portable.ErrKind.
	ImportULP(now clock.Instant, id engine.FlowID, o portable.Object) (stream.ULP, error)
	// Installed says that an engine runs the connection. The engine may have called the
	// upper layer before.
	Installed(id engine.FlowID, c *Conn)
	// Opened says that all connections are installed, and that the program may use the
	// layer.
	Opened()
	// Dropped says that the old process continues. What was imported must be forgotten,
	// without a word to any peer.
	Dropped()
}

// movable is an Heir that wants to know when a connection has moved to another runner.
type movable interface {
	// Moved returns the TakeOver.Moved of a connection. nil: none.
	Moved(id engine.FlowID) func()
}
