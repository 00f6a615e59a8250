package flow

import (
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/work"
)

// Queue is the application's end of a group of slots of an Initiator. One goroutine at a
// time may call Post and Cancel, and one at a time Poll. A command that was posted needs a
// doorbell: the caller wakes the connection after Post and Cancel.
type Queue struct {
	flow   *Initiator
	first  int  // slot; the others follow it
	depth  int  // number of slots
	posted ring // from the poster to the step
	free   ring // slots that were used, from the poller to the poster
	cq     *work.CQ
	places work.Places
	next   *Queue // the queue that was made before

	control bool // see NewControlQueue

	// The poster owns these fields.
	fresh  int  // index of the first slot that was never used
	inTurn bool // a command was canceled: all slots are used in turn
}

// NewQueue makes a queue of the n slots from first on. No slot may be in two queues. News
// of the queue must have a Fire before the first post. Only one goroutine at a time may
// call NewQueue. A Queue lasts as long as its Initiator.
func (f *Initiator) NewQueue(first, n int) *Queue {
	q := f.newQueue(first, n)
	f.add(q)
	return q
}

func (f *Initiator) newQueue(first, n int) *Queue {
	q := &Queue{flow: f, first: first, depth: n, cq: work.NewCQ(n, f.board)}
	q.posted.init(n)
	q.free.init(n)
	return q
}

// add shows a queue to the step.
func (f *Initiator) add(q *Queue) {
	q.next = f.queues.Load()
	f.queues.Store(q)
}

// News is raised when an armed queue gets a completion. The owner sets its Fire.
func (q *Queue) News() *signal.Signal { return &q.cq.News }

// Arm asks for News of the next completion. The caller polls once more after Arm, because
// an earlier completion raises nothing.
func (q *Queue) Arm() { q.cq.Arm(false) }

// Ready reports whether Poll would find a completion.
func (q *Queue) Ready() bool { return q.cq.Ready() }

// Depth returns the number of slots: how many commands can be posted and not polled.
func (q *Queue) Depth() int { return q.depth }

// Room returns how many commands Post takes. Only the goroutine that may call Post may call
// Room.
func (q *Queue) Room() int { return q.free.len() + q.depth - q.fresh }

// Post posts commands in order, as many as there are free slots, and returns how many. A
// slot is free again when Poll has returned its completion. An error is about the command
// after those.
func (q *Queue) Post(commands ...Command) (n int, err error) {
	for n < len(commands) {
		if q.gone() {
			return n, ErrEnded
		}
		slot, ok := q.vacant()
		if !ok {
			break
		}
		t := q.task(slot)
		if err = t.set(&commands[n], q.flow.limit, q.flow.leaves); err != nil {
			return n, err
		}
		if slot == q.first+q.fresh {
			q.fresh++
		} else {
			q.free.pop()
		}
		t.busy.Store(true)
		q.posted.push(slot)
		n++
	}
	if n != 0 && q.gone() {
		q.flow.flush() // Fault may not have seen the last ones
	}
	return n, nil
}

// vacant returns the slot of the next command. Slots that were used come first, so that a
// queue has only as many tasks as it had commands in flight at a time. After a Cancel they
// come last: the target may keep the canceled command for long, and its tag comes again after
// 256 commands in its slot.
func (q *Queue) vacant() (slot int, ok bool) {
	switch {
	case q.free.len() != 0 && (!q.inTurn || q.fresh == q.depth):
		return q.free.front(), true
	case q.fresh != q.depth:
		return q.first + q.fresh, true
	}
	return 0, false
}

// task returns the task of a slot. A task is made when its slot is first used, so that a queue
// that is not used takes little memory.
func (q *Queue) task(slot int) *task {
	t := q.flow.tasks[slot].Load()
	if t == nil {
		t = &task{queue: q}
		q.flow.tasks[slot].Store(t)
	}
	return t
}

// Cancel ends the commands of this ID that are not complete. Each completes with Canceled
// in the next step, unless its status is there before. When Poll has returned the
// completion, nothing uses the command's buffers any more. Cancel reports whether there is
// such a command. The target may still execute it: an Event asks for its abort.
func (q *Queue) Cancel(id uint64) (found bool) {
	for i := range q.fresh {
		t := q.flow.tasks[q.first+i].Load()
		if t.busy.Load() && t.id == id && t.cancel.Load() == nil {
			rest := make([]byte, t.leaves)
			t.cancel.Store(&rest)
			found = true
		}
	}
	if found {
		q.inTurn = true
		q.flow.canceling.Store(true)
	}
	return found
}

// Poll moves completions into dst, oldest first, and returns their number. The slots of the
// commands, and their buffers, are free then.
func (q *Queue) Poll(dst []Completion) (n int) {
	var got [8]work.Completion
	for n < len(dst) {
		k := q.cq.Poll(got[:min(len(got), len(dst)-n)])
		for _, c := range got[:k] {
			slot := int(c.ID)
			t := q.flow.tasks[slot].Load()
			dst[n] = t.result()
			t.letGo()
			t.busy.Store(false)
			q.free.push(slot)
			n++
		}
		if k == 0 {
			break
		}
	}
	return n
}
