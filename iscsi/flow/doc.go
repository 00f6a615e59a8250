// Package flow implements the data path of one iSCSI connection in the full feature phase
// (RFC 7143), as upper-layer protocols of package stream. It does no I/O, starts no
// goroutine and takes no lock.
//
// The parts that both roles have:
//
//	rx.go       the stream, cut into PDUs; the data segment goes straight to its place
//	tx.go       a PDU, gathered into the segments of the stream
//	scatter.go  a position in a list of buffers
//	reason.go   why a PDU, a command or a connection is refused
//	tally.go    counts of reasons and latencies, for reports
//	ring.go     slots and events, between the step and the application
//
// The initiator:
//
//	initiator.go     the machine, its end, and what its consumer may call
//	initiator_rx.go  a row for each PDU of a target; the checks of US 7,299,266, FIG. 17B
//	initiator_tx.go  what leaves next: data, pongs, commands; cancellation
//	task.go          a command in its slot
//	queue.go         the application's end: post, poll, cancel
//	recovery.go      commands that outlive their connection
//	numbers.go       numbers of commands, also of several connections of a session
//	datamover.go     connections that are no streams
//	repair.go        what error recovery level 1 keeps; initiator_repair.go uses it
//
// A command keeps its slot from Post to Poll. The step binds the slot's entry in the table
// when the command leaves, and its STag is the Initiator Task Tag. The status ends the
// entry. When Poll has returned the completion, neither an arriving nor a leaving PDU uses
// the command's buffers.
//
// The receiver assembles no PDU. It collects the header, verifies the header's digest, and
// asks the role where the data segment goes. Then it copies each view of the stream to that
// place, and digests the octets in the same pass. A data digest is known only behind the
// last octet, so the octets are in place before: until the command ends, the content of its
// buffer is undefined. If the digest is wrong, the command fails.
//
// The target's role:
//
//	target.go          Target, its life, what other goroutines may call
//	job.go             a request of the initiator
//	pool.go, share.go  memory for data, and what a session may have of it
//	target_rx.go       requests: order, window, refusal
//	target_command.go  commands: begin, memory, run, answer
//	target_data.go     Data-Out that is placed by Target Transfer Tag
//	target_stream.go   the stream: what leaves next, R2Ts, Data-In
//	target_messages.go messages with RDMA instead of a stream (RFC 7145)
//	target_tx.go       responses
//	target_control.go  pings, text, logout
//	target_ping.go     silent initiators
//	target_abort.go    task management
//	target_session.go  what the connections of a session share: whose turn a CmdSN is
//	target_turn.go     requests whose turn has not come
//	target_spread.go   task management and logouts for other connections
//	target_repair.go   error recovery level 1
//
// A Target answers reads and writes of a backend that lends its memory within the step.
// All else that may block goes to other goroutines and comes back (TakeWork, Done).
package flow
