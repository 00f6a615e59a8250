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
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/tpt"
)

// TargetConfig is the configuration of a Target. All fields but Ping must be set.
type TargetConfig struct {
	Params login.Params // result of the login
	Tags   *tpt.Tags    // an entry for each job; the Target does not release them
	Window int          // how many commands may be in progress; less than Tags.Len()
	Board  *signal.Board
	Pool   *Pool
	LUNs   map[uint64]*LUN // by the octets of the LUN; the map must not change
	Absent *LUN            // for any other LUN

	// Ping is how long the initiator may be silent before a ping, and how long it may take to
	// answer. 0: no pings.
	Ping time.Duration
}

// Target is the target's end of a connection, from the login on. It implements
// stream.ULP. Each command has a slot. An R2T carries the STag of the slot's entry as
// Target Transfer Tag, so that the data of the initiator is placed in the backend's
// memory or in a buffer of the pool, within the step. Data-In is sent from there.
//
// A session has one connection. Its error recovery level is 0.
type Target struct {
	params login.Params
	cfg    TargetConfig
	most   int // longest data segment of a Data-In in octets

	// Work is raised when TakeWork has jobs. Ended is raised, or fired by Done, when the
	// connection has ended and no job is with another goroutine: then the owner calls
	// Release. The owner sets Fire of both before the first step.
	Work, Ended signal.Signal

	// Several goroutines use these fields.
	posted   atomic.Pointer[Job]
	returned atomic.Pointer[Job]
	purges   atomic.Pointer[purge]
	abroad   atomic.Int32 // jobs that are with another goroutine, and 1 for the step
	wantEnd  atomic.Bool
	cause    error  // of the end, valid when Ended is raised
	why      Reason // for which this end has ended the connection
	orderly  bool   // the initiator has logged out

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
	unasked []*Job  // jobs that wait for unsolicited Data-Out, oldest first
	sn      targetNumbers
	alive   keepAlive
	retry   clock.Instant // when to look for memory again
	leaving bool          // a Logout Request has come
	goodbye bool          // the Logout Response has left
	broken  Reason
	sense   []byte // data segment of the response that is leaving
	stats   TargetStats
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
}

// largestDataIn limits the data segments of Data-In, so that the commands behind a large
// one get their turn.
const largestDataIn = 256 << 10

// NewTarget makes the machine of a connection whose login is done.
func NewTarget(c TargetConfig) *Target {
	n := c.Tags.Len()
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
	t.rx.role, t.rx.digests, t.rx.limit = (*targetRole)(t), c.Params.Digests, c.Params.MaxRecvLength
	t.tx.digests = c.Params.Digests
	t.alive.init(c.Ping)
	return t
}

// senseLimit is the longest data segment of a SCSI Response or a Reject in octets.
const senseLimit = 64

// Receive implements stream.ULP.
func (t *Target) Receive(now clock.Instant, s stream.Stream) {
	t.alive.hear(now)
	if t.broken == OK {
		if end := t.rx.run(s); end != OK {
			t.abort(s, end)
		}
	}
	if s.EOF() {
		s.CloseWrite()
	}
}

// Transmit implements stream.ULP.
func (t *Target) Transmit(now clock.Instant, s stream.Stream) {
	if t.wantEnd.Load() && t.broken == OK {
		t.abort(s, Closed)
	}
	t.collect()
	t.purge()
	if t.broken != OK {
		return
	}
	if !t.alive.check(now) {
		t.abort(s, Silent)
		return
	}
	t.feed(now)
	for t.sending != nil || t.alive.open || t.begin() {
		left, ok := t.tx.emit(s)
		if !ok {
			t.abort(s, Unreadable)
			return
		}
		if !left {
			return
		}
		t.stats.PDUsOut++
		t.left()
	}
	if t.goodbye {
		s.CloseWrite()
	}
}

// abort ends the connection.
func (t *Target) abort(s stream.Stream, why Reason) {
	t.broken = why
	s.Abort()
}

// Deadline implements stream.ULP.
func (t *Target) Deadline() clock.Instant {
	if t.broken != OK {
		return clock.Never
	}
	return clock.Sooner(t.retry, t.alive.deadline())
}

// Fault implements stream.ULP.
func (t *Target) Fault(_ clock.Instant, err error) {
	t.cause, t.why = err, t.broken
	t.orderly = t.goodbye
	t.broken = Closed
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
			t.cfg.Pool.Give(j.buffer)
			j.buffer = nil
		}
	}
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
	n := len(t.free)
	if n == 0 {
		return nil
	}
	slot := int(t.free[n-1])
	t.free = t.free[:n-1]
	j := t.jobs[slot]
	if j == nil {
		j = &Job{target: t, slot: slot}
		t.jobs[slot] = j
	}
	task := &j.Task
	*j = Job{target: t, slot: slot, header: *h, by: noJob, Task: unit.Task{CDB: task.CDB}}
	if j.counts() {
		t.windows++
	}
	return j
}

// noJob is the number of no slot.
const noJob = -1

// release frees the slot of a job.
func (t *Target) release(j *Job) {
	if j.bound {
		t.cfg.Tags.Revoke(j.slot)
	}
	if j.buffer != nil {
		t.cfg.Pool.Give(j.buffer)
	}
	if j.counts() {
		t.windows--
	}
	lun, by, isTask := j.lun, j.by, j.isCommand()
	if isTask && lun != nil {
		lun.order.Leave(&j.Task)
	}
	j.lun, j.buffer, j.pieces[0], j.bound, j.place, j.by = nil, nil, nil, false, nowhere, noJob
	j.Task.Nexus, j.Task.Data, j.Text = nil, nil, nil
	t.free = append(t.free, int32(j.slot))
	if isTask && lun != nil {
		t.resume(lun)
	}
	if by != noJob {
		t.less(t.jobs[by])
	}
}
