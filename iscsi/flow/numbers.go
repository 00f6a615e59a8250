package flow

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/signal"
)

// numbers are the sequence numbers of an Initiator (RFC 7143 §4.2.2). Those of commands
// belong to the session: if that may have several connections, shared has them.
type numbers struct {
	cmdSN     seq.Num // of the next command; with shared: that take has taken
	maxCmdSN  seq.Num
	expStatSN seq.Num
	shared    *Numbers
}

// begin sets the numbers of a connection whose login is done. Those of commands that are
// shared are the owner's to set (Numbers.Begin).
func (n *numbers) begin(p *login.Params) {
	n.cmdSN, n.maxCmdSN, n.expStatSN = p.CmdSN, p.MaxCmdSN, p.StatSN
}

// take reports whether the window is open for a command. Then assign must follow.
func (n *numbers) take() (ok bool) {
	if n.shared == nil {
		return n.cmdSN.AtOrBefore(n.maxCmdSN)
	}
	n.cmdSN, ok = n.shared.take()
	return ok
}

// assign returns the number of the command that leaves.
func (n *numbers) assign(immediate bool) seq.Num {
	switch {
	case immediate:
		return n.next()
	case n.shared == nil:
		n.cmdSN++
		return n.cmdSN - 1
	}
	return n.cmdSN
}

// next returns the number that an immediate request carries.
func (n *numbers) next() seq.Num {
	if n.shared == nil {
		return n.cmdSN
	}
	return seq.Num(n.shared.cmdSN.Load())
}

// grow takes MaxCmdSN of a PDU of the target.
func (n *numbers) grow(most seq.Num) {
	switch {
	case n.shared != nil:
		n.shared.grow(most)
	case most.After(n.maxCmdSN):
		n.maxCmdSN = most
	}
}

// Numbers are the numbers of commands of a session with several connections. The steps of
// the connections take them from it, and none waits for another.
type Numbers struct {
	// Opened is raised when the command window has grown, and a connection has waited for
	// that. The owner sets its Fire, which wakes the connections.
	Opened signal.Signal

	board  *signal.Board
	cmdSN  atomic.Uint32 // of the next command
	max    atomic.Uint32 // MaxCmdSN
	hungry atomic.Bool   // a connection waits for the window
}

// NewNumbers makes the numbers of a session.
func NewNumbers(b *signal.Board) *Numbers { return &Numbers{board: b} }

// Begin sets the numbers with which a new session begins. No step runs.
func (n *Numbers) Begin(next, max seq.Num) {
	n.cmdSN.Store(uint32(next))
	n.max.Store(uint32(max))
}

// take takes the next number, if the window is open.
func (n *Numbers) take() (seq.Num, bool) {
	for {
		sn := n.cmdSN.Load()
		if !n.open(sn) {
			n.hungry.Store(true)
			if !n.open(sn) { // grow sees that this connection waits, or has opened the window before
				return 0, false
			}
		}
		if n.cmdSN.CompareAndSwap(sn, sn+1) {
			return seq.Num(sn), true
		}
	}
}

func (n *Numbers) open(sn uint32) bool { return seq.Num(sn).AtOrBefore(seq.Num(n.max.Load())) }

// grow moves MaxCmdSN forward. PDUs of several connections overtake each other, so an older
// value changes nothing.
func (n *Numbers) grow(most seq.Num) {
	for {
		old := n.max.Load()
		if !most.After(seq.Num(old)) {
			return
		}
		if n.max.CompareAndSwap(old, uint32(most)) {
			break
		}
	}
	if n.hungry.Load() && n.hungry.Swap(false) {
		n.board.Raise(&n.Opened)
	}
}
