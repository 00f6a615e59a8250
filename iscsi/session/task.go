package session

import (
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/seq"
)

// Command is a command of the session. The owner sets the exported fields before Submit
// and does not change them before the command has completed and Session.Live is false: a
// mover may know a canceled command until the target has answered its abort.
type Command struct {
	ID  uint64 // the owner's
	LUN uint64 // 8 octets in network order, as in a header
	CDB scsi.CDB

	// Once: the command is not sent again after the loss of its connection. It completes
	// with Uncertain.
	Once bool
	// Ended: the target ends the command before it answers the login that reinstates the
	// session, so the command is not executed late, and its unit needs no reset.
	Ended bool

	state   taskState
	sn      seq.Num // that Send had
	replays uint8   // how often the command was sent again
	adopted bool    // the mover had sent it; see Adopt
	list    *taskList
	prev    *Command
	next    *Command
}

// taskState is where a command is.
type taskState uint8

const (
	unknown  taskState = iota // not submitted, or ended
	waiting                   // not sent over this connection
	sent                      // sent, without status
	aborting                  // completed for the owner, but the target has it
)

// taskList is a list of commands, without memory of its own.
type taskList struct {
	head, tail *Command
	len        int
}

func (l *taskList) add(c *Command) {
	c.list, c.prev, c.next = l, l.tail, nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	l.len++
}

// remove takes a command out of its list.
func (c *Command) remove() {
	l := c.list
	if c.prev == nil {
		l.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	l.len--
	c.list, c.prev, c.next = nil, nil, nil
}

// prepend puts the commands of other in front of those of l. other is empty then.
func (l *taskList) prepend(other *taskList) {
	old := *l
	*l = taskList{}
	for _, from := range []*taskList{other, &old} {
		for c := from.head; c != nil; {
			next := c.next
			l.add(c)
			c = next
		}
	}
	*other = taskList{}
}
