// Package rdma gives Go programs RDMA: remote memory access and messages over
// iWARP, without an RDMA adapter and without cgo. Where libibverbs or rdma_cm has
// a name for a thing, this package uses that name.
//
//	Adapter    everything of one process: ports, memory, the table of who may use it
//	 ├ PD      a protection domain: QPs reach regions of their own PD only
//	 │  ├ MR   a region: memory with an STag (LKey, RKey) and access flags
//	 │  └ QP   one end of a reliable connection: a send and a receive queue
//	 ├ CQ      a completion queue: QPs report finished work requests there
//	 └ Listener, ConnRequest    connections that peers ask for
//
// Adapter.CreateEndpoint makes a PD, two CQs, a QP and a region by one call: an Endpoint.
//
// # What happens to a work request
//
//	PostSend(WRWrite, SGL, RemoteAddr, RKey)                       the peer
//	  │ checked, copied into the send queue, one doorbell
//	  ▼
//	engine: local access check ── segments, CRC ── TCP ── port ──▶ engine: CRC,
//	  │ the last segment has left                                  table check,
//	  ▼                                                            then into the
//	CQ: Completion{ID, Status}  ◀── Next, Poll                     region itself
//
// A Write places octets in the peer's memory that RKey names. A Read fetches octets
// from the peer's memory that RKey names. The peer's application takes no part in
// either and gets no completion. A Send goes into the peer's oldest receive, and that
// receive completes. If the peer has posted no receive, the connection ends: a Send
// does not wait for one.
//
// # Ordering
//
// Work requests of one QP begin in the order in which they were posted, and
// complete in that order. In addition:
//
//   - A Send is delivered only after every Write before it is in the peer's
//     memory, and a Read sees every Write before it. To notify the peer of a Write,
//     post a Send after the Write.
//   - A Send or a Write can overtake a Read that was posted before it. The Fence
//     flag holds the request back until all earlier Reads have completed.
//   - The octets of a Write may appear in any order. Do not poll the last octet
//     to learn that the others are there.
//   - Work requests of different QPs are not ordered.
//
// # Who owns the memory
//
// The adapter owns the memory that a work request's list names, from the post to the
// completion: do not change memory that is being sent, and do not read memory that is
// being received into. An unsignaled request is done when a later request of the same
// QP has completed. Inline data is copied, and its memory is free at once. The peer may
// change registered memory with remote rights at any time, until MR.Invalidate or
// MR.Close has returned.
//
// When a Write or a Send completes with Success, the transport answers for it: it
// will arrive, or the connection ends and Err says why. Success does not say that it
// has arrived. To learn that, read back (a Read of length 0 is enough: its completion
// proves the Writes before it), or let the peer answer.
//
// When a connection ends, no request succeeds after the first one that has not
// succeeded: every later request completes as Flushed, or with an error of its own,
// even if its octets have left.
//
// # Connections
//
// Dial and Listen use the kernel's TCP, in the network namespace where Open was
// called. They exchange MPA Request and Reply (RFC 5044, RFC 6581) with private
// data and read depths. With Config.Ports, the adapter then takes the connection over
// from the kernel, and the steering program brings its packets to the engine. With
// Config.KernelPort, the connection stays a kernel socket. Everything else is the same.
// There is no silent fallback: a connection that cannot be offloaded is an error.
//
// A connection ends in one of three ways: by Disconnect, when both ends have sent
// everything; by an error, whose Terminate message names layer, type and code
// (QPError); or by a reset (Abort, Close). Every posted request completes in any case,
// as Flushed if it was not done. If the peer disconnects first, Writes and Sends that
// are posted still leave, and both ends close in good order. A Read cannot be answered
// then: it ends the connection when its turn comes.
// A QP is connected once; make another QP for another connection.
//
// # Looking into it
//
// Every adapter serves a unix socket, of mode 0600, from Open to Close. `stag show`,
// `stag dump` and `stag metrics` ask that socket (package offload/control).
// Config.NoControl makes no socket. Adapter.Report and Adapter.Capture give a program
// the same data.
//
// # Rights
//
// An STag has 32 bits and is not a secret. Two checks protect memory: the peer's QP
// must be in the region's PD, and the region must have the right. Put peers that do
// not trust each other into different PDs, or bind regions to QPs (MROptions.QP). Give
// remote rights only where they are needed, and take them back as soon as they are not.
//
// A peer's Send with Invalidate invalidates a region that is bound to the peer's own
// QP. It cannot invalidate a region that other streams use as well, unless the region
// has the right RemoteInvalidate.
//
// # Concurrency
//
// Everything is safe for concurrent use. PostSend, PostRecv and Poll do not
// allocate, and wait only for each other.
//
// Config.Progress says which goroutines move the octets. With ProgressInline, a
// PostSend of a small message returns when the message has left, and a Poll that finds
// nothing processes what has arrived. This is the path with the lowest latency: it
// needs no other thread. A program that waits for something without a completion, such
// as a peer's Write, must poll the CQ meanwhile. Wait sleeps after a while, and a program
// may sleep between Arm and Notify. Goroutines of the adapter do the work then, and also
// when the program no longer polls.
package rdma
