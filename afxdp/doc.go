// Package afxdp receives and transmits frames on one queue of a network interface
// through an AF_XDP socket. It implements port.Port. Besides the standard library it
// imports only golang.org/x/sys/unix.
//
// One Arena holds the frames of every queue of an adapter. It is cut into regions. A
// queue registers only its own region with the kernel:
//
//	arena  | region of queue 0              | region of queue 1   | other uses
//	       | rx chunk … | tx chunk …        | rx chunk … | tx …  | region heap
//	       ^ base                            port.Frame.Addr counts from here ^
//
// A chunk circulates and has one owner at a time:
//
//	receive:  pool → fill ring → kernel → rx ring → engine (Receive) → pool (Recycle)
//	transmit: pool → engine (Take) → tx ring → kernel → completion ring → pool
//
// The engine holds a transmit chunk from Take to Free, so that it can send a segment
// again. A chunk in the pool is neither held nor in flight.
//
// Receive and transmit pools are disjoint. A slow consumer therefore cannot use up the
// frames that carry acknowledgements.
//
// The files rx.go and tx.go are the data path and allocate nothing. wait.go and bell.go
// put the queue's goroutine to sleep and wake it. errno.go maps the kernel's errors to
// actions. open.go opens a queue. The socket belongs to the network namespace of the
// thread that calls Open. The loader puts the socket into the XDP program's map: see
// FD.
//
// Part of the API of stag: Stats, KernelStats. Package rdma has aliases of them.
package afxdp
