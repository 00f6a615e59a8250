// Package handoff takes an established TCP connection over from the kernel.
//
// Its place in the life of a connection: the kernel opens it, an upper layer
// negotiates over the ordinary socket, then
//
//	s, err := handoff.Open(conn)      // can it be moved at all?
//	err = s.Take(ctx, steps, grace)   // moved, or left as it was
//
// and from then on an engine runs that connection: steps.Install received its state
// as a tcp.State, and a Placeholder that holds the 4-tuple in the kernel.
//
// A socket in repair mode is not inert. It acknowledges segments that reach it, and
// its retransmission and keepalive timers run on and reset the peer in the end.
// Therefore Take first steers segments away and then replaces the socket by one with
// empty queues and no timers. The kernel's connection then cannot send.
//
// The socket is replaced only when a segment of its connection has reached the
// engine: a route says which way segments leave, and nothing about those that
// come. hear.go asks the peer for one.
//
// The package does not depend on the engine: the caller's Steps change the steering
// table and the engine.
package handoff
