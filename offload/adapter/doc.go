// Package adapter is the device. The device has network ports or the kernel's TCP,
// memory, and the table that says which connection may use which memory. Upper layers
// stand on the device (Layer): the verbs, and later iSCSI. A layer makes connections
// (Dial, Listen) and negotiates with the peers. Then the layer calls Socket.TakeOver to
// have a connection taken over for a stream.ULP of its own.
//
//	adapter.go    Open, Close, Use
//	layer.go      what an adapter must know of a layer: two interfaces
//	config.go     Config
//	port.go       ports, and which port leads to a peer
//	progress.go   the runner of connections: the adapter or the program
//	dial.go, listen.go, race.go, address.go, patience.go
//	              connections, while they are the kernel's
//	carrier.go, takeover.go
//	              connections that were taken over
//	ports.go      ports that come and go
//	drain.go      ports that connections leave
//	group.go      ports that are watched together: configuration
//	group_run.go  ports that are watched together: probes, moves of addresses and connections
//	event.go      events of ports and routes
//	capture.go, capture_stream.go
//	              packets
//	report.go, report_port.go, report_table.go, control.go, stats.go
//	              the adapter's report of itself, and the control socket
//
// Lock order: the lock behind Use comes first. A goroutine must not take that lock
// twice. If a Close waits for the lock when the goroutine takes it the second time,
// both block forever. Locks of layers, of captures and of the heap come last.
package adapter
