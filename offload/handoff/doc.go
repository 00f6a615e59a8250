// Package handoff takes an established TCP connection over from the kernel, and gives it
// back.
//
// The kernel opens the connection, and an upper layer negotiates over the ordinary
// socket. Then the upper layer calls
//
//	s, err := handoff.Open(conn)      // checks that the connection can be moved
//	err = s.Take(ctx, steps, grace)   // moves it, or leaves it as it was
//
// After Take an engine runs that connection. steps.Install received the connection's
// state as a tcp.State, and a Placeholder that holds the 4-tuple in the kernel.
//
// A socket in repair mode still acts. It acknowledges segments that reach it. Its
// retransmission and keepalive timers run on and reset the peer in the end. Therefore
// Take first steers segments away, and then replaces the socket by one with empty
// queues and no timers. The kernel's connection then cannot send.
//
// Take replaces the socket only when a segment of its connection has reached the
// engine. A route says which way segments leave, but not which way they come. hear.go
// asks the peer for a segment.
//
// Placeholder.GiveBack is the way back (giveback.go, refill.go, forge.go). It makes a
// kernel connection from a tcp.State.
//
// The package does not depend on the engine. The caller's Steps change the steering
// table and the engine.
package handoff
