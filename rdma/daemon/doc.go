// Package daemon lets other processes use an adapter. A client connects to the daemon's
// socket and asks for objects of verbs in the messages of package proto. The queues of these
// objects are in memory that the client maps, so that a post and a poll need no message.
//
//	Daemon ── client        one process: its control connection, quota and memory
//	           ├ objects    PDs, CQs, QPs, regions, windows, SRQs by handle (objects.go)
//	           ├ bell       one page, one bit per QP and SRQ (bits.go)
//	           ├ channels   completion channels: pipes (channel.go)
//	           ├ streams    connections that carry events (stream.go)
//	           └ ids        connection manager: identifiers and their events (id.go, ...)
//
// A client cannot name an object of another client, because each client has a table of
// handles of its own. No object of a client outlives the client. The daemon trusts no octet
// of a message.
//
// The goroutine that reads a client's requests also executes them, one after the other. What
// may take long (connecting, accepting, disconnecting) runs in another goroutine, and ends
// in an event.
package daemon
