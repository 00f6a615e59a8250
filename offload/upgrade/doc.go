// Package upgrade hands all connections of a running process over to another process, without
// a reset. The processes talk over a Unix socket:
//
//	old process                        new process
//	hello, port…        programs, maps, claims, as descriptors
//	                                   ready: everything but the queues is prepared
//	freeze
//	flow…, object…      states, placeholders as descriptors
//	complete            everything has been sent
//	released            the queues are free
//	                                   bound: the new process has the queues
//	commit              the old process will not change its mind
//	                                   taken: the point of no return
//	                                   done: all connections run
//
//	wire.go       messages with descriptors
//	messages.go   the contents of the messages
//	offer.go      the old process
//	successor.go  the new process
//
// # Who has the connections when something fails
//
// Before taken the old process has the connections. If the new process refuses, dies or is
// late, the old one waits until the new one has closed the connection, kills it if it does not,
// and runs its connections on. It says so by abort, if there is anybody to tell.
//
// If the old process dies before complete, its connections are lost, as without an upgrade. If
// it dies after complete, the new process has everything, and continues. The new process
// recognizes the death by the end of the connection: an old process that lives says abort
// before it closes the connection.
//
// After taken the old process has nothing any more. If the new one dies then, the connections
// are lost, as without an upgrade.
package upgrade
