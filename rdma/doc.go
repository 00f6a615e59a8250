// Package rdma is RDMA for Go programs: remote memory access and messages over
// iWARP, without an RDMA adapter and without cgo. The names are those of
// libibverbs and rdma_cm where they have one.
//
//	Adapter    everything of one process: ports, memory, the table of who may use it
//	 ├ PD      a protection domain: QPs reach regions of their own PD only
//	 │  ├ MR   a region: memory with an STag (LKey, RKey) and access flags
//	 │  └ QP   one end of a reliable connection: a send and a receive queue
//	 ├ CQ      a completion queue, where QPs say what has been done
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
// A Write goes to memory of the peer that its RKey names, and a Read fetches
// from such; the peer's application takes no part and gets no completion. A
// Send goes into the peer's oldest receive, which completes. A peer without a
// posted receive ends the connection: there is no waiting for one.
//
// # Ordering
//
// Work requests of one QP begin in the order in which they were posted, and
// complete in that order. Beyond that:
//
//   - A Send is delivered only when every Write before it is in the peer's
//     memory, and a Read sees every Write before it: notify by a Send behind.
//   - Behind a Read, a Send or a Write can overtake: the Fence flag holds it
//     back until all earlier Reads have completed.
//   - Where a Write's octets appear first is anybody's guess: polling memory
//     for the last one is not a protocol. Nothing is ordered between QPs.
//
// # Who owns the memory
//
// What a work request's list names is the adapter's from the post to the
// completion: do not change what is being sent, do not look at what is being
// received. Unsignaled requests are done when a later one of the same QP has
// completed. Inline data is copied, and free at once. Registered memory with
// remote rights is the peer's to change whenever it likes, until
// MR.Invalidate or MR.Close has returned.
//
// That a Write or a Send has completed with Success says that the transport
// answers for it: it will arrive, or the connection ends and Err says why. It
// does not say that it has arrived. To know, read back (a Read of length 0 is
// enough: its completion proves the Writes before it), or let the peer answer.
//
// When a connection ends, the first request that has not succeeded is followed
// by no success: everything behind it completes as Flushed, or with an error of
// its own, even if its octets have left.
//
// # Connections
//
// Dial and Listen use the kernel's TCP, in the network namespace where Open was
// called, and exchange MPA Request and Reply (RFC 5044, RFC 6581) with private
// data and read depths. Then, with Config.Ports, the connection is taken over
// from the kernel, and the steering program brings its packets to the engine;
// with Config.KernelPort it stays a kernel socket. Everything else is the same.
// There is no silent fallback: what cannot be offloaded is an error.
//
// # Looking into it
//
// Every adapter serves a unix socket, of mode 0600, from Open to Close: it is
// how `stag show`, `stag dump` and `stag metrics` see what is going on (package
// offload/control; Config.NoControl makes none). Adapter.Report and
// Adapter.Capture give a program the same.
//
// A connection ends by Disconnect (both sides have said all), by an error, whose
// Terminate message names layer, type and code (QPError), or by a reset (Abort,
// Close). Whatever was posted completes in any case, as Flushed if not done.
// If the peer disconnects first, Writes and Sends that are posted still leave, and
// both ends close in good order. A Read cannot be answered then: it ends the
// connection when its turn comes.
// A QP is connected once; make another for another connection.
//
// # Rights
//
// An STag is 32 bits, not a secret. What protects memory is that the peer's QP
// must be in the region's PD, and the region have the right: put peers that do
// not trust each other into different PDs, or bind regions to QPs
// (MROptions.QP), give remote rights only where they are needed, and take them
// back as soon as they are not.
//
// A peer's Send with Invalidate takes back what is bound to its own QP. It cannot
// take away what other streams use as well, unless the region has the right
// RemoteInvalidate.
//
// # Concurrency
//
// Everything is safe for concurrent use. PostSend, PostRecv and Poll neither
// allocate nor wait for anything but each other.
//
// Who moves the octets is Config.Progress. Inline, a PostSend of a small message
// returns when the message has left, and a Poll that finds nothing takes in what
// has arrived: the shortest way there is, and no other thread is needed for it.
// Whoever waits for something that no completion tells, such as a peer's Write,
// polls the CQ meanwhile. Wait sleeps after a while, and so can a program that
// waits for Arm and Notify: then goroutines of the adapter do the work. They do
// also when nobody polls any more.
package rdma
