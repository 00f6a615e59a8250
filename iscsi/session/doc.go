// Package session is an initiator's session as a machine without I/O: it survives the end
// of its connection. It logs in again, and sends the commands that have no status again
// if a second execution does no harm. Every command completes once (RFC 7143 §7.1: error
// recovery level 0 with session reinstatement).
//
//	state.go     the life cycle as one function       window.go   CmdSN and the command window
//	session.go   the machine: what its owner calls    task.go     the registry of commands
//	recover.go   loss, waiting, reinstatement         replay.go   which commands go again
//	manage.go    task management, cancellation        async.go    asynchronous messages, logout
//	mover.go     what the machine asks of others
//
// The machine takes the time as an argument. Deadline says when it next wants a Tick. It
// speaks to a Mover, which carries PDUs over one connection, and to an Owner, which gets
// the results. A Mover over TCP and one over RDMA serve the same machine.
//
// A session belongs to one goroutine. Movers and owners do not call the machine from
// within a call that the machine makes.
package session
