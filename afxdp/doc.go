// Package afxdp gives an engine frames from one queue of a network interface,
// and takes frames for it, through an AF_XDP socket: an implementation of
// port.Port over golang.org/x/sys/unix alone.
//
// One Arena holds the frames of every queue of an adapter. It is cut into
// regions; a queue registers its own region, and no more, with the kernel:
//
//	arena  | region of queue 0              | region of queue 1   | other uses
//	       | rx chunk … | tx chunk …        | rx chunk … | tx …  | region heap
//	       ^ base                            port.Frame.Addr counts from here ^
//
// A chunk goes round and has one owner at a time:
//
//	receive:  pool → fill ring → kernel → rx ring → engine (Receive) → pool (Recycle)
//	transmit: pool → engine (Take) → tx ring → kernel → completion ring → pool
//	          the engine keeps its own hold from Take to Free, so that a segment
//	          can be sent again; pool means neither held nor in flight
//
// Receive and transmit pools are disjoint: a slow consumer cannot take the
// frames away that acknowledgements travel in.
//
// The way down: rx.go and tx.go are the data path and allocate nothing; wait.go
// and bell.go are how the queue's goroutine sleeps and is woken; errno.go is
// what each error of the kernel means; open.go is how a queue comes to be and
// ends. The socket belongs to the network namespace of the thread that calls
// Open. Putting it into the XDP program's map is the loader's work: see FD.
//
// Part of the API of stag: Stats, KernelStats. Package rdma has aliases of them.
package afxdp
