// Package rdma gives Go programs RDMA: remote memory access and messages over iWARP,
// without an RDMA adapter and without cgo. The package uses the names of libibverbs and
// rdma_cm if they have a name for a thing.
//
//	Adapter    everything of one process: ports, memory, the table of access rights
//	 ├ PD      a protection domain: QPs reach regions of their own PD only
//	 │  ├ MR   a region: memory with an STag (LKey, RKey) and access flags
//	 │  ├ MW   a memory window: a part of a region that peers may access for a time
//	 │  └ QP   one end of a reliable connection: a send and a receive queue
//	 ├ CQ      a completion queue: QPs report finished work requests there
//	 ├ CompChannel    one place to wait for many CQs, also with epoll
//	 └ Listener, ConnRequest    connections that peers ask for
//
// Adapter.CreateEndpoint makes an Endpoint, which consists of a PD, two CQs, a QP and a
// region.
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
// from the peer's memory that RKey names. The peer's application takes no part in a
// Write or a Read and gets no completion. A Send goes into the peer's oldest receive,
// and that receive completes. A Send does not wait for a receive. If the peer has
// posted none, the connection ends. An atomic operation changes 8 octets of the peer's
// memory and fetches their old value. Immediate Data behind a Write tells the peer's
// application of the Write. Both need a peer that knows RFC 7306 (ExtRFC7306).
//
// # Ordering
//
// Work requests of one QP begin in the order in which they were posted, and complete in
// that order. In addition:
//
//   - A Send is delivered only after every Write before it is in the peer's
//     memory, and a Read sees every Write before it. To notify the peer of a Write,
//     post a Send after the Write.
//   - A Send or a Write can overtake a Read or an atomic operation that was posted before
//     it. The Fence flag holds the request back until all earlier ones have completed.
//   - Reads and atomic operations see the effects of each other in the order in which they
//     were posted. Immediate Data is ordered as a Send.
//   - The octets of a Write may appear in any order. The last octet may be there
//     before the others, so do not poll it.
//   - Work requests of different QPs are not ordered.
//
// # Who owns the memory
//
// The adapter owns the memory that a work request's list names, from the post to the
// completion. Do not change memory that is being sent. Do not read memory that is being
// received into. An unsignaled request is done when a later request of the same QP has
// completed. Inline data is copied, and its memory is free at once. The peer may change
// registered memory with remote rights at any time, until MR.Invalidate or MR.Close has
// returned.
//
// When a Write or a Send completes with Success, the transport is responsible for its
// delivery. The message will arrive, or the connection ends and Err says why. Success
// does not say that the message has arrived. To make sure that a Write has arrived,
// post a Read after it: a completed Read, even of length 0, proves the Writes before
// it. Or let the peer answer.
//
// When a connection ends, no request succeeds after the first one that has not
// succeeded. Every later request completes as Flushed, or with an error of its own,
// even if its octets have left.
//
// # Connections
//
// Dial and Listen use the kernel's TCP, in the network namespace where Open was called.
// They exchange MPA Request and Reply (RFC 5044, RFC 6581) with private data and read
// depths. With Config.Ports, the adapter then takes the connection over from the
// kernel, and the steering program brings its packets to the engine. With
// Config.KernelPort, the connection stays a kernel socket. Everything else is the same.
// There is no silent fallback. A connection that cannot be offloaded is an error.
//
// A connection ends in one of three ways. Disconnect ends it when both ends have sent
// everything. An error ends it with a Terminate message that names layer, type and code
// (QPError). Abort and Close end it with a reset. Every posted request completes in any
// case. A request that was not performed completes as Flushed. If the peer disconnects
// first, posted Writes and Sends still leave, and both ends close in good order. The
// peer cannot answer a Read then, so that a posted Read ends the connection when its
// turn comes. A QP is connected only once. Make another QP for another connection.
//
// # Another process
//
// With Config.Upgrade a running program can be replaced by a newer one: Adapter.HandOver
// gives all objects and connections to another process, and Succeed takes them. Numbers
// and STags stay the same, the memory of regions is the same memory, and each work request
// completes in one of the two processes. The peers notice nothing but a pause.
//
// # Looking into it
//
// Every adapter serves a unix socket, of mode 0600, from Open to Close. `stag show`,
// `stag dump` and `stag metrics` ask that socket (package offload/control). With
// Config.NoControl there is no socket. Adapter.Report and Adapter.Capture give a
// program the same data.
//
// # Rights
//
// An STag has 32 bits and is not a secret. Memory is protected by two checks: the
// peer's QP must be in the region's PD, and the region must have the right. Put peers
// that do not trust each other into different PDs, or bind regions to QPs
// (MROptions.QP). Give remote rights only where they are needed, and take them back as
// soon as they are not.
//
// A peer's Send with Invalidate invalidates a region that is bound to the peer's own
// QP. Such a Send cannot invalidate a region that other streams use as well, unless the
// region has the right RemoteInvalidate.
//
// # Concurrency
//
// Everything is safe for concurrent use. PostSend, PostRecv and Poll do not allocate.
// They wait only for each other.
//
// Config.Progress says which goroutines move the octets. With ProgressInline, a
// PostSend of a small message returns when the message has left. A Poll that finds no
// completion processes the octets that have arrived. ProgressInline has the lowest
// latency, because it needs no other thread. A program that waits for an event without
// a completion, such as a peer's Write, must poll the CQ meanwhile. Wait sleeps after a
// while. A program may also sleep between Arm and Notify. Goroutines of the adapter do
// the work during a sleep, and also when the program no longer polls.
package rdma
