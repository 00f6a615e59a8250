package flow

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// LUN is a logical unit as one session sees it. It belongs to the step of the session's
// connection.
type LUN struct {
	Nexus  *unit.Nexus
	Staged bool // data goes through the Pool even if the unit can lend its memory
	order  unit.Order
}

// JobOp is what a Job wants from a goroutine that may block.
type JobOp uint8

// Operations of jobs.
const (
	JobBegin  JobOp = iota // Unit.Begin of Task; then, if no Data-Out is missing, Unit.Run
	JobRun                 // Unit.Run of Task
	JobText                // answer the text in Text; the answer goes there too
	JobReset               // reset the units of LUNs that Function names
	JobLogout              // forget the nexus of every LUN: the initiator logs out, and no command is left
	JobSpread              // Spread over the other connections of the session
)

// Job is a request of the initiator. It belongs to the step, except between
// TargetConfig.Work and Target.Done: then it belongs to the caller of these.
type Job struct {
	Op   JobOp
	Task unit.Task
	Let  bool // the result of Begin
	Wait bool // Begin has let Data-In through, but there was no memory for it

	texts                 // of JobText
	Function pdu.Function // of JobReset
	LUN      uint64       // of JobReset: the unit, for LogicalUnitReset
	Response uint8        // of JobReset: the result

	target *Target
	slot   int
	header pdu.Header // of the request
	number uint64     // of a command: how many have arrived with it
	lun    *LUN
	next   *Job // in a list that goroutines share

	place  jobPlace
	late   unit.Sense // why the job fails when it comes back
	op     pdu.Opcode // of the answer
	reject pdu.RejectReason

	let     bool // Begin or Open has let the command through
	done    bool // Status is set
	inbound bool // the data segment of the command is arriving
	unasked bool // unsolicited Data-Out is missing
	again   bool // unsolicited data was dropped for lack of memory: R2Ts ask for it anew
	aborted bool // no response

	// unwanted says that nobody waits for the job: it was aborted, or the connection has
	// ended. The step writes it, and others read it.
	unwanted atomic.Bool

	bound  bool // the entry of the slot is valid
	parted bool // the job takes no place of the window any more
	relations

	buffer []byte    // memory of the pool; nil: the data is in lent memory, or there is none
	pieces [1][]byte // where Data-Out goes, or where Data-In comes from

	got    uint32 // octets of Data-Out that are there
	upto   uint32 // end of the sequence that is under way
	sent   uint32 // octets of Data-In that have left
	dataSN uint32 // of the next Data-Out of the sequence, or of the next Data-In
	r2tSN  uint32
	ttt    pdu.Tag // of the youngest R2T
	numbering

	begun clock.Instant // when the command arrived; 0: it is no command in progress
}

// texts are a Text Request and its answer.
type texts struct {
	Text    []byte // the request, then the answer
	Refused bool   // the request is rejected
	MaxSend int    // the initiator's new MaxRecvDataSegmentLength; 0: no new one
}

// relations is what a job has to do with other jobs of its session.
type relations struct {
	by    int // slot of the task management request that waits for the end, or none
	waits int // of a task management request: how many jobs it waits for

	// These fields are for sessions with several connections.
	claimed  bool         // the job takes a place of the window of the TargetSession
	alone    bool         // with no other beside it
	held     bool         // its turn has not come
	whole    bool         // held, and its data segment is there
	other    bool         // a logout of another connection
	foreign  *purge       // waits for the end, on behalf of another connection
	siblings atomic.Int32 // of a request for other connections: how many of them have not answered
}

// numbering is the StatSN of a job, and what error recovery level 1 needs.
type numbering struct {
	statSN   seq.Num // of the status, if numbered
	numbered bool
	damage   bool    // a part of the present sequence of Data-Out was damaged
	bad      uint32  // its first octet
	from     uint32  // where the present sequence of Data-Out begins
	tries    uint8   // how often the same Data-Out was asked for again
	snackTag pdu.Tag // of an R-Data SNACK
	resend   resend  // of a SNACK Request
}

// jobPlace is where a job waits.
type jobPlace uint8

const (
	nowhere   jobPlace = iota // the slot is free, or a PDU of the job is arriving
	inOrder                   // for older tasks
	forTurn                   // for the turn of its number
	forMemory                 // in hungry
	forData                   // for Data-Out
	atWork                    // with a goroutine that may block
	forJobs                   // for jobs that it has aborted
	inUrgent                  // in urgent: a response or an R2T
	inStream                  // in stream: Data-In
	inTx                      // a PDU of the job is leaving
	forAck                    // in kept: the status has left
)

// isCommand reports whether the job is a SCSI command.
func (j *Job) isCommand() bool { return j.header.Opcode() == pdu.OpCommand }

// counts reports whether the job takes a place of the command window.
func (j *Job) counts() bool { return !j.header.Immediate() && j.op != pdu.OpReject }

// want is how many octets of Data-Out the command needs.
func (j *Job) want() uint32 {
	if j.Task.Dir != unit.DataOut || j.done {
		return 0
	}
	return min(j.Task.Want, j.Task.EDTL)
}

// total is how many octets of Data-In the command sends.
func (j *Job) total() uint32 {
	if j.Task.Dir != unit.DataIn || j.Task.Status != unit.Good {
		return 0
	}
	return min(j.Task.Length, j.Task.EDTL)
}

// fail ends the command with CHECK CONDITION. The data that the initiator may still send
// is received first.
func (j *Job) fail(key scsi.Key, code scsi.Code) {
	switch s := (unit.Sense{Key: key, Code: code}); {
	case j.place == atWork: // another goroutine has the task
		j.late = s
	case !j.done:
		j.done = true
		j.Task.Status, j.Task.Sense = unit.CheckCondition, s
	}
}

// Allot gives a command that Begin has let through the memory for its Data-In. If there
// is none, Allot returns false, and the job gets memory and JobRun later. Only the
// goroutine that has the job for JobBegin may call Allot.
func (j *Job) Allot() bool {
	n := min(j.Task.Want, j.Task.EDTL)
	if j.Task.Dir != unit.DataIn || n == 0 {
		return true
	}
	if j.buffer == nil && j.target.waiting.Load() == 0 {
		j.buffer = j.target.share.Take(int(n))
	}
	if j.Wait = j.buffer == nil; j.Wait {
		return false
	}
	j.Task.Data = j.buffer[:n]
	j.pieces[0] = j.Task.Data
	return true
}

// Unwanted reports whether nobody waits for the result of the job any more. A goroutine that
// has the job for long looks from time to time, and then gives the job back.
func (j *Job) Unwanted() bool { return j.unwanted.Load() }

// jobFIFO is a queue of jobs with a fixed capacity.
type jobFIFO struct {
	cells []*Job
	head  int
	n     int
}

func (q *jobFIFO) push(j *Job, capacity int) {
	if q.cells == nil {
		q.cells = make([]*Job, capacity)
	}
	q.cells[(q.head+q.n)%len(q.cells)] = j
	q.n++
}

// remove removes a job, wherever it is.
func (q *jobFIFO) remove(j *Job) {
	for range q.n {
		if o := q.pop(); o != j {
			q.push(o, len(q.cells))
		}
	}
}

func (q *jobFIFO) pop() *Job {
	if q.n == 0 {
		return nil
	}
	j := q.cells[q.head]
	q.cells[q.head] = nil
	q.head = (q.head + 1) % len(q.cells)
	q.n--
	return j
}
