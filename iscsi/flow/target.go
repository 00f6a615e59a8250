package flow

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/tpt"
)

// TargetConfig is the configuration of a Target. All fields but Ping must be set, and one
// of Tags and Slots.
type TargetConfig struct {
	Params login.Params // result of the login
	Tags   *tpt.Tags    // of a stream: an entry for each job; the Target does not release them
	Slots  int          // of messages: how many jobs there may be
	Window int          // how many commands may be in progress; less than the number of jobs
	Board  *signal.Board
	Pool   *Pool

	// Session is what the connections of a session share that may have several; nil: it has
	// one. Its window is Window.
	Session *TargetSession
	LUNs    map[uint64]*LUN // by the octets of the LUN; the map must not change
	Absent  *LUN            // for any other LUN

	// Ping is how long the initiator may be silent before a ping, and how long it may take to
	// answer. 0: no pings.
	Ping time.Duration
}

// Target is the target's end of a connection, from the login on: what the initiator asks
// for, in its order and within the command window. Each command has a slot. A datamover
// (RFC 5047) carries the PDUs and the data of commands: a stream (Stream) or messages and
// RDMA (Messages). The data of the initiator goes to the backend's memory or to a buffer
// of the pool, and Data-In comes from there.
//
// A session has one connection, or several with a TargetSession in common.
type Target struct {
	params login.Params
	cfg    TargetConfig
	mover  targetMover
	most   int // longest data segment of a Data-In in octets

	targetSignals

	// Several goroutines use these fields.
	posted   atomic.Pointer[Job]
	returned atomic.Pointer[Job]
	purges   atomic.Pointer[purge]
	abroad   atomic.Int32  // jobs that are with another goroutine, and 1 for the step
	arrivals atomic.Uint64 // commands that have arrived
	wantEnd  atomic.Bool
	share    *Share       // of the pool
	waiting  atomic.Int32 // jobs in hungry
	cause    error        // of the end, valid when Ended is raised
	why      Reason       // for which this end has ended the connection
	orderly  bool         // the initiator has logged out

	// The step owns these fields.
	rx      receiver
	tx      sender
	jobs    []*Job
	free    []int32
	windows int // commands in progress that take a place of the window
	present *Job
	sending *Job
	urgent  jobFIFO // jobs with a response or an R2T
	stream  jobFIFO // jobs with Data-In
	hungry  jobFIFO // jobs that wait for memory
	targetRepair
	unasked []*Job // jobs that wait for unsolicited Data-Out, oldest first
	sn      targetNumbers
	alive   keepAlive
	retry   clock.Instant // when to look for memory again
	leaving bool          // a Logout Request has come
	goodbye bool          // the Logout Response has left
	broken  Reason
	sense   []byte // data segment of the response that is leaving
	stats   TargetStats
	tally   Tally
	now     clock.Instant // of the step
	member  *member       // of a session that may have several connections; nil: it has one
}

// targetSignals tell the owner of a Target what there is to do. The owner sets each Fire
// before the first step.
type targetSignals struct {
	// Work is raised when TakeWork has jobs. Ended is raised, or fired by Done, when the
	// connection has ended and no job is with another goroutine: then the owner calls
	// Release. Freed is raised when an atomic command of any connection may run that waits
	// for lent memory (unit.Unit.Claim).
	//
	// Turn is for a session with several connections: another connection has work for this
	// one, which the owner wakes.
	Work, Ended, Freed, Turn signal.Signal
}

// targetMover moves the data of commands.
type targetMover interface {
	// enter looks at a command that has arrived. It may fail the command.
	enter(j *Job)
	// fetch asks for the octets of Data-Out from j.got to j.upto (Get_Data of RFC 5047).
	fetch(j *Job)
	// deliver sends Data-In, and the response behind it (Put_Data and Send_Control).
	deliver(j *Job)
}

// targetNumbers are the sequence numbers of the session and the connection (RFC 7143
// §4.2.2).
type targetNumbers struct {
	expCmdSN seq.Num
	maxCmdSN seq.Num // the greatest that was sent
	statSN   seq.Num
}

// TargetStats counts what a Target has done.
type TargetStats struct {
	Commands        uint64
	PDUsIn, PDUsOut uint64
	Placed          uint64 // octets of Data-Out that were placed
	Sent            uint64 // octets of Data-In that were sent
	Refused         uint64 // PDUs whose data was dropped
	DigestErrors    uint64
	AskedAgain      uint64 // sequences of Data-Out that were asked for again because of digest errors
	Resent          uint64 // PDUs that SNACKs have asked for
}

// largestDataIn limits the data segments of Data-In, so that the commands behind a large
// one get their turn.
const largestDataIn = 256 << 10

// NewTarget makes the machine of a connection whose login is done. The caller then calls
// Stream or Messages, and Release in any case.
func NewTarget(c TargetConfig) *Target {
	n := c.Slots
	if c.Tags != nil {
		n = c.Tags.Len()
	}
	t := &Target{
		params: c.Params, cfg: c, most: min(c.Params.MaxSendLength, largestDataIn),
		jobs: make([]*Job, n), free: make([]int32, n), retry: clock.Never,
		sn:    targetNumbers{c.Params.CmdSN, c.Params.MaxCmdSN, c.Params.StatSN},
		sense: make([]byte, 0, senseLimit),
	}
	for i := range t.free {
		t.free[i] = int32(n - 1 - i)
	}
	t.abroad.Store(1)
	t.share = c.Pool.Join()
	t.rx.role, t.rx.digests, t.rx.limit = (*targetRole)(t), c.Params.Digests, c.Params.MaxRecvLength
	t.tx.digests = c.Params.Digests
	t.alive.init(c.Ping)
	t.Freed.Fire, t.Turn.Fire = func() {}, func() {}
	if c.Session != nil {
		t.member = newMember(c.Session, t)
	}
	return t
}

// senseLimit is the longest data segment of a SCSI Response or a Reject in octets.
const senseLimit = 64

// serve does what is due before the Target sends. It returns a reason that ends the
// connection, or OK.
func (t *Target) serve(now clock.Instant) Reason {
	t.now = now
	if t.wantEnd.Load() && t.broken == OK {
		t.broken = Closed
	}
	t.collect()
	t.purge()
	t.takeTurns()
	switch {
	case t.broken != OK:
		return t.broken
	case !t.alive.check(now):
		return Silent
	}
	t.feed(now)
	return OK
}

// deadline returns when serve is due.
func (t *Target) deadline() clock.Instant {
	if t.broken != OK {
		return clock.Never
	}
	return clock.Sooner(t.retry, t.alive.deadline())
}

// fault takes note of the end of the connection.
func (t *Target) fault(err error) {
	t.cause, t.why = err, t.broken
	t.tally.count(t.why)
	t.orderly = t.goodbye
	t.broken = Closed
	for _, j := range t.jobs {
		if j != nil {
			j.unwanted.Store(true)
			t.settle(j)
		}
	}
	if t.abroad.Add(-1) == 0 {
		t.cfg.Board.Raise(&t.Ended)
	}
}

// End resets the connection. Any goroutine may call it. The caller wakes the connection.
func (t *Target) End() { t.wantEnd.Store(true) }

// Over returns how the connection has ended. Only the owner may call it, after Ended.
// orderly says that the initiator has logged out.
func (t *Target) Over() (orderly bool, why Reason, cause error) { return t.orderly, t.why, t.cause }

// Release gives all memory back. Only the owner may call it, after Ended.
func (t *Target) Release() {
	t.returned.Store(nil)
	for _, j := range t.jobs {
		if j != nil && j.buffer != nil {
			t.share.Give(j.buffer)
			j.buffer = nil
		}
	}
	t.adopt()
	t.share.Leave()
	t.secede()
}

// Stats returns the counters. Only the holder of the step may call it.
func (t *Target) Stats() TargetStats { return t.stats }

// TakeWork returns the jobs that were posted, oldest first, as a list that NextWork
// walks. Any goroutine may call it.
func (t *Target) TakeWork() *Job { return reverse(t.posted.Swap(nil)) }

// NextWork returns the job behind j in the list of TakeWork. The caller must call it
// before j is done.
func (j *Job) NextWork() *Job { return j.next }

// Target returns the connection of the job.
func (j *Job) Target() *Target { return j.target }

// Done gives a job back. Any goroutine may call it. Afterwards the caller wakes the
// connection.
func (t *Target) Done(j *Job) {
	push(&t.returned, j)
	if t.abroad.Add(-1) == 0 {
		t.Ended.Fire()
	}
}

// push adds a job to a shared list.
func push(list *atomic.Pointer[Job], j *Job) {
	for {
		j.next = list.Load()
		if list.CompareAndSwap(j.next, j) {
			return
		}
	}
}

// reverse returns the list in the order in which jobs were pushed.
func reverse(j *Job) (first *Job) {
	for j != nil {
		next := j.next
		j.next = first
		first, j = j, next
	}
	return first
}

// post gives a job to a goroutine that may block.
func (t *Target) post(j *Job, op JobOp) {
	j.Op, j.place = op, atWork
	t.abroad.Add(1)
	push(&t.posted, j)
	t.cfg.Board.Raise(&t.Work)
}

// collect takes the jobs that are done.
func (t *Target) collect() {
	if t.returned.Load() == nil {
		return
	}
	for j := reverse(t.returned.Swap(nil)); j != nil; {
		next := j.next
		j.next = nil
		j.place = nowhere
		t.finished(j)
		j = next
	}
}

// take makes a job of a request. It returns nil if there is no slot.
func (t *Target) take(h *pdu.Header) *Job {
	if t.full() {
		return nil
	}
	n := len(t.free)
	slot := int(t.free[n-1])
	t.free = t.free[:n-1]
	j := t.jobs[slot]
	if j == nil {
		j = &Job{target: t, slot: slot}
		t.jobs[slot] = j
	}
	task := &j.Task
	*j = Job{target: t, slot: slot, header: *h, relations: relations{by: noJob}, Task: unit.Task{CDB: task.CDB}}
	if j.counts() {
		t.occupy(j)
	}
	return j
}

// settle gives memory back that a unit has lent for a write. Nothing is placed there any more.
func (t *Target) settle(j *Job) {
	if n := j.Task.Nexus; n != nil && n.Unit().Settle(&j.Task) {
		t.cfg.Board.Raise(&t.Freed)
	}
}

// full reports whether no slot can be had.
func (t *Target) full() bool { return len(t.free) == 0 && !t.evict() }

// noJob is the number of no slot.
const noJob = -1

// release ends a job and frees its slot.
func (t *Target) release(j *Job) {
	t.conclude(j)
	t.vacate(j)
}

// vacate frees the slot and the memory of a job that has ended.
func (t *Target) vacate(j *Job) {
	t.giveBack(j)
	j.buffer, j.pieces[0], j.place, j.numbered = nil, nil, nowhere, false
	j.Task.Nexus, j.Task.Data, j.Text = nil, nil, nil
	t.free = append(t.free, int32(j.slot))
}

// conclude ends a job: others that have waited for its end go on.
func (t *Target) conclude(j *Job) {
	t.tallyEnd(j)
	t.settle(j)
	if j.bound {
		t.cfg.Tags.Revoke(j.slot)
	}
	if j.counts() && !j.parted {
		t.leave(j)
	}
	lun, by, isTask := j.lun, j.by, j.isCommand()
	if isTask && lun != nil {
		lun.order.Leave(&j.Task)
	}
	j.lun, j.bound, j.by, j.parted, j.place = nil, false, noJob, true, nowhere
	if isTask && lun != nil {
		t.resume(lun)
	}
	if by != noJob {
		t.less(t.jobs[by])
	}
	t.lessAbroad(j)
}
