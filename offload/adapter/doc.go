// Package adapter is the device: network ports or the kernel's TCP, memory, and the
// table that says which connection may use which memory. Upper layers stand on it
// (Layer): the verbs, and later iSCSI. A layer finds connections (Dial, Listen), says
// what their ends agree on, and has them taken over for a stream.ULP of its own
// (Socket.TakeOver).
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
//	event.go      what happens to ports and routes
//	capture.go, capture_stream.go
//	              packets
//	report.go, report_port.go, report_table.go, control.go, stats.go
//	              what the adapter says of itself, and the socket by which it does
//
// The order of locks: the lock behind Use comes first, and no goroutine takes it a
// second time, because a Close that waits in between would stop both. Locks of layers,
// of captures and of the heap come last.
package adapter
