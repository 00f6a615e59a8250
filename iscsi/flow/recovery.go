package flow

import (
	"slices"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// recovery is what an Initiator needs to outlive its connections.
//
// If Config.Keep is set, the commands survive the end of the connection (Fault):
//
//	Over      reports the end; from then on the owner has the commands
//	Kept      tells the commands that have left and have no status
//	Release   sends a kept command again over the next connection, or ends it
//	Restart   makes the machine ready for the next connection, behind its login
//	Admit     lets the commands leave that the Restart holds back
//	Finish    ends all commands, and the machine
//
// One goroutine, the owner, calls these methods. Settle, Restart and Finish need Over.
type recovery struct {
	keep     bool
	gate     atomic.Bool  // pending commands do not leave
	ended    atomic.Bool  // no connection follows
	heard    atomic.Int64 // when octets of the target have arrived last
	released ring         // from the owner to the step

	// The step owns these fields.
	urgent   slotFIFO // requests of control queues that have not left
	again    slotFIFO // commands that the owner has released and that have not left
	finished uint64   // commands of the other queues that got a status over this connection
}

// prepare makes the lines that only a session needs which has lost a connection. No step
// runs.
func (f *Initiator) prepare() {
	if f.again.cells == nil {
		f.released.init(len(f.states))
		f.again.init(len(f.states))
	}
}

// Kept is a command that has left over a connection that has ended, and has no status.
type Kept struct {
	Slot    int
	LUN     uint64 // 8 octets in network order
	CDB     [pdu.CDBLen]byte
	Replays uint8 // how often the command was released before
	CmdSN   seq.Num
}

// halt ends the work of the connection. Commands without status stay. Requests of control
// queues end with Lost.
func (f *Initiator) halt() {
	f.burst = noSlot
	for slot, st := range f.states {
		t := f.tasks[slot].Load()
		switch {
		case st == idle || st == kept:
		case t.ending: // it has a status
			f.push(slot, t)
		case t.queue.control:
			f.end(slot, Lost)
		case st == active:
			f.tags.Revoke(slot)
			f.withdraw(slot, t, Lost)
			f.states[slot], t.told = kept, false
		}
	}
}

// Kept returns the commands that have left and have no status, in the order in which they
// have left. A command is returned once, until Release.
func (f *Initiator) Kept() (all []Kept) {
	f.prepare()
	var found []int
	for slot, st := range f.states {
		if t := f.tasks[slot].Load(); st == kept && !t.told {
			t.told = true
			found = append(found, slot)
		}
	}
	slices.SortFunc(found, func(a, b int) int {
		if f.tasks[a].Load().cmdSN.Before(f.tasks[b].Load().cmdSN) {
			return -1
		}
		return 1
	})
	for _, slot := range found {
		t := f.tasks[slot].Load()
		all = append(all, Kept{slot, t.header.LUN(), [pdu.CDBLen]byte(t.header.CDB()), t.replays, t.cmdSN})
	}
	return all
}

// Release gives a kept command back. With OK the command leaves before all commands that
// wait. With another reason it completes. The owner then calls Settle if the connection is
// over, and otherwise wakes the connection.
func (f *Initiator) Release(slot int, why Reason) {
	t := f.tasks[slot].Load()
	if t.why = why; why == OK {
		t.replays++
	}
	f.released.push(slot)
}

// Canceled reports whether the application wants the end of a kept command.
func (f *Initiator) Canceled(slot int) bool { return f.tasks[slot].Load().cancel.Load() != nil }

// Settle does what a step does for commands that do not leave: it completes those that
// were released with a reason, and those that were canceled and have not left.
func (f *Initiator) Settle(now clock.Instant) {
	f.now = now
	f.gather()
	if f.canceling.Load() {
		f.cancelTasks()
	}
}

// gatherReleased takes the commands that the owner has released.
func (f *Initiator) gatherReleased() {
	for slot, ok := f.released.pop(); ok; slot, ok = f.released.pop() {
		t := f.tasks[slot].Load()
		if t.why != OK {
			f.push(slot, t)
			continue
		}
		t.renew()
		f.wait(slot, t, &f.again)
		if t.cancel.Load() != nil {
			f.canceling.Store(true)
		}
	}
}

// wait puts a command behind those of a line.
func (f *Initiator) wait(slot int, t *task, line *slotFIFO) {
	f.states[slot], t.line = waiting, line
	line.push(slot)
}

// Restart makes the machine ready for a new connection whose login is done. Commands do not
// leave before Admit, but for those that were released and for control queues.
func (f *Initiator) Restart(p login.Params) {
	f.prepare()
	f.params = p
	f.most = min(p.MaxSendLength, f.leaves)
	f.rx = receiver{role: (*initiatorRole)(f), digests: p.Digests, limit: p.MaxRecvLength}
	f.tx = sender{digests: p.Digests}
	f.numbers.begin(&p)
	f.arriving, f.sending, f.burst = noSlot, noSlot, noSlot
	f.setLevel(p.ErrorRecoveryLevel)
	f.data.n, f.pongs.n = 0, 0
	clear(f.queued)
	for f.pending.n != 0 { // behind the commands that were released over the last connection
		f.again.push(f.pending.pop())
	}
	f.pending, f.again = f.again, f.pending
	for i := range f.pending.n {
		slot := f.pending.cells[(f.pending.head+i)%len(f.pending.cells)]
		f.tasks[slot].Load().line = &f.pending
	}
	f.broken, f.closing, f.cause, f.why, f.finished = OK, false, nil, OK, 0
	f.wantClose.Store(false)
	f.wantAbort.Store(false)
	f.gate.Store(true)
	f.over.Store(false)
}

// Admit lets commands leave after Restart. The owner wakes the connection.
func (f *Initiator) Admit() { f.gate.Store(false) }

// Finish ends all commands with Lost. Post fails from then on.
func (f *Initiator) Finish() {
	f.gather()
	for slot, st := range f.states {
		if st != idle {
			t := f.tasks[slot].Load()
			t.why = Lost
			f.push(slot, t)
		}
	}
	f.pending.n, f.again.n, f.urgent.n = 0, 0, 0
	f.ended.Store(true)
	f.flush()
}

// Heard returns when octets of the target have arrived last.
func (f *Initiator) Heard() clock.Instant { return clock.Instant(f.heard.Load()) }

// Finished returns how many commands have got a status over the connection that is over.
// Those of control queues do not count.
func (f *Initiator) Finished() uint64 { return f.finished }

// renew makes a task as Post left it, so that it can leave again.
func (t *task) renew() {
	t.received, t.dataSN, t.rest, t.first, t.count = 0, 0, burst{}, 0, 0
	t.failed, t.ending, t.moved, t.sent, t.placed, t.answer = OK, false, false, false, 0, 0
}

// NewControlQueue makes a queue for requests that belong to the present connection: they
// leave before all others, and complete with Lost when the connection ends. It must be made
// before the first step, and there is only one.
func (f *Initiator) NewControlQueue(first, n int) *Queue {
	q := f.newQueue(first, n)
	q.control = true
	f.urgent.init(n)
	f.add(q)
	return q
}

// gone reports whether no step will take what is posted.
func (q *Queue) gone() bool {
	return q.flow.ended.Load() || q.control && q.flow.over.Load()
}
