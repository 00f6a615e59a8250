package session

import "github.com/stag-rdma/stag/offload/seq"

// Window gives out command sequence numbers (RFC 7143 §4.2.2.1). The numbers belong to
// the session, so several connections may share a Window.
type Window struct {
	next, exp, max seq.Num
}

// NewWindow makes a window: next is the number of the next command, max is the last number
// that the target takes.
func NewWindow(next, max seq.Num) Window { return Window{next, next, max} }

// Update takes ExpCmdSN and MaxCmdSN of a PDU of the target. PDUs of several connections
// overtake each other, so an older value changes nothing.
func (w *Window) Update(exp, max seq.Num) {
	if max.Before(exp.Back(1)) {
		return // neither is valid
	}
	w.exp, w.max = seq.Later(w.exp, exp), seq.Later(w.max, max)
}

// Open returns how many commands may be sent now.
func (w *Window) Open() uint32 {
	if w.next.After(w.max) {
		return 0
	}
	return uint32(w.next.Until(w.max)) + 1
}

// Take returns the number of the next command, which is not immediate. The window must be
// open.
func (w *Window) Take() seq.Num {
	n := w.next
	w.next = n.Add(1)
	return n
}

// Next returns the number that an immediate request carries.
func (w *Window) Next() seq.Num { return w.next }

// Received reports whether the target has received all commands up to sn.
func (w *Window) Received(sn seq.Num) bool { return w.exp.After(sn) }
