package session

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// Mover carries the PDUs of one connection at a time: a datamover in the words of RFC
// 5047. Its methods do not block. The machine calls all but Connect only between
// Connected and Drop.
type Mover interface {
	// Connect starts a connection and its login: the same ISID, and TSIH 0. The mover follows
	// a target that has moved. The answer is Session.Connected, Session.Failed or
	// Session.Mismatch.
	Connect()

	// Drop ends the connection without a logout, or gives the present attempt to connect
	// up. Nothing of the old connection may reach the machine after Drop, and no octet of
	// that connection may reach the commands' buffers. A mover that sends commands without
	// the machine calls Session.Adopt for them here.
	Drop()

	// Send sends a command. The mover answers R2Ts and places data until the command ends.
	// The answer is Session.Finished or Session.Rejected.
	Send(c *Command, sn seq.Num)

	// Revoke makes the buffers of a sent command inaccessible at once. A late PDU for the
	// command is dropped and counted.
	Revoke(c *Command)

	// Manage sends an immediate task management request. of is the command for AbortTask,
	// else nil; ref is its CmdSN. The answer is Session.Managed.
	Manage(f pdu.Function, lun uint64, of *Command, ref, sn seq.Num)

	// Ping sends a NOP-Out that wants an answer. The answer is Session.Ponged.
	Ping(sn seq.Num)

	// Fill sends a NOP-Out that is not immediate and wants no answer, so that a number which
	// a rejected command has left gets used.
	Fill(sn seq.Num)

	// Acknowledge answers an asynchronous message about ended tasks (RFC 7143 §11.9.1).
	Acknowledge(lun uint64, sn seq.Num)

	// Logout asks to close the session. The answer is Session.LoggedOut.
	Logout(sn seq.Num)
}

// Owner gets the results. Its methods do not block.
type Owner interface {
	// Completed ends a command. The machine calls it once for each Submit without an error.
	// The command's buffers are the owner's again.
	Completed(c *Command, o Outcome)

	// Managed is the result of Session.Manage: the response of the target, or lost if the
	// connection ended before.
	Managed(cookie uint64, response uint8, lost bool)

	// Changed tells the state and, for Held and Lost, the cause.
	Changed(s State, cause error)

	// Notice tells an asynchronous message of the target that the machine does not act on.
	Notice(h *pdu.Header)

	// Unprotected tells that the target refused the reset which keeps commands of the old
	// connection from being executed late. Commands that change the unit have completed
	// with Uncertain.
	Unprotected(lun uint64, response uint8)
}

// Outcome is how a command ended.
type Outcome uint8

const (
	Done        Outcome = iota // the target sent the status
	Canceled                   // Session.Cancel; the target may have executed the command
	Aborted                    // a task management function ended it
	Uncertain                  // the connection was lost; the target may have executed the command, and it must not be sent again
	Rejected                   // the target has not received it, by its own word
	SessionLost                // the session was lost or closed; the target may have executed the command if it was sent
)

func (o Outcome) String() string {
	return [...]string{"done", "canceled", "aborted", "uncertain", "rejected", "session lost"}[o]
}
