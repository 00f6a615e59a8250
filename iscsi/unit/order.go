package unit

// Attribute is a task attribute (SAM-5 §8.5).
type Attribute byte

// Task attributes, with the values of RFC 7143 §11.3.1.
const (
	Untagged    Attribute = 0
	Simple      Attribute = 1
	Ordered     Attribute = 2
	HeadOfQueue Attribute = 3
	ACA         Attribute = 4
)

// Order decides when the tasks of one nexus may begin. Each nexus has a task set of its
// own (TST, SPC-4 §7.5.8), so the transport keeps an Order for each nexus and needs no
// lock.
type Order struct {
	running     int
	ordered     bool // an ordered task runs
	first, last *Task
}

// Enter adds a task. Enter reports whether the task may begin now. Otherwise Next
// returns the task later. A task may begin when:
//
//	Head of queue  at once
//	Ordered        all older tasks have ended
//	other          all older ordered tasks have ended
func (o *Order) Enter(t *Task, a Attribute) bool {
	t.attribute, t.next = a, nil
	if a == HeadOfQueue || o.first == nil && o.may(t) {
		o.begin(t)
		return true
	}
	if o.last != nil {
		o.last.next = t
	} else {
		o.first = t
	}
	o.last = t
	return false
}

// Leave says that a task that has begun has ended. The caller must then call Next until
// it returns nil.
func (o *Order) Leave(t *Task) {
	o.running--
	if t.attribute == Ordered {
		o.ordered = false
	}
}

// Next returns a task that may begin now, or nil.
func (o *Order) Next() *Task {
	t := o.first
	if t == nil || !o.may(t) {
		return nil
	}
	o.remove(nil, t)
	o.begin(t)
	return t
}

// Cancel removes a task that has not begun. Cancel reports whether there was such a
// task. The caller must then call Next until it returns nil.
func (o *Order) Cancel(t *Task) bool {
	for before, at := (*Task)(nil), o.first; at != nil; before, at = at, at.next {
		if at == t {
			o.remove(before, t)
			return true
		}
	}
	return false
}

// Idle reports whether there is no task.
func (o *Order) Idle() bool { return o.running == 0 && o.first == nil }

// may reports whether the oldest waiting task may begin.
func (o *Order) may(t *Task) bool {
	if t.attribute == Ordered {
		return o.running == 0
	}
	return !o.ordered
}

func (o *Order) begin(t *Task) {
	o.running++
	o.ordered = o.ordered || t.attribute == Ordered
}

// remove takes t, which stands behind before, out of the list.
func (o *Order) remove(before, t *Task) {
	if before == nil {
		o.first = t.next
	} else {
		before.next = t.next
	}
	if o.last == t {
		o.last = before
	}
	t.next = nil
}
