package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// LUN is a logical unit as one session sees it. It belongs to the step of the session's
// connection.
type LUN struct {
	Nexus *unit.Nexus
	order unit.Order
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
)

// Job is a request of the initiator. It belongs to the step, except between
// TargetConfig.Work and Target.Done: then it belongs to the caller of these.
type Job struct {
	Op   JobOp
	Task unit.Task
	Let  bool // the result of Begin
	Wait bool // Begin has let Data-In through, but there was no memory for it

	Text     []byte       // of JobText: the request, then the answer
	MaxSend  int          // of JobText: the initiator's new MaxRecvDataSegmentLength; 0: no new one
	Function pdu.Function // of JobReset
	LUN      uint64       // of JobReset: the unit, for LogicalUnitReset
	Response uint8        // of JobReset: the result

	target *Target
	slot   int
	header pdu.Header // of the request
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
	aborted bool // no response
	bound   bool // the entry of the slot is valid
	by      int  // slot of the task management request that waits for the end, or none
	waits   int  // of a task management request: how many jobs it waits for

	buffer []byte    // memory of the pool; nil: the data is in lent memory, or there is none
	pieces [1][]byte // where Data-Out goes, or where Data-In comes from

	got    uint32 // octets of Data-Out that are there
	upto   uint32 // end of the sequence that is under way
	sent   uint32 // octets of Data-In that have left
	dataSN uint32 // of the next Data-Out of the sequence, or of the next Data-In
	r2tSN  uint32
}

// jobPlace is where a job waits.
type jobPlace uint8

const (
	nowhere   jobPlace = iota // the slot is free, or a PDU of the job is arriving
	inOrder                   // for older tasks
	forMemory                 // in hungry
	forData                   // for Data-Out
	atWork                    // with a goroutine that may block
	forJobs                   // for jobs that it has aborted
	inUrgent                  // in urgent: a response or an R2T
	inStream                  // in stream: Data-In
	inTx                      // a PDU of the job is leaving
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
func (j *Job) fail(key byte, code unit.Code) {
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
	if j.buffer == nil {
		j.buffer = j.target.cfg.Pool.Take(int(n))
	}
	if j.Wait = j.buffer == nil; j.Wait {
		return false
	}
	j.Task.Data = j.buffer[:n]
	j.pieces[0] = j.Task.Data
	return true
}

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
