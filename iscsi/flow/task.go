package flow

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/tpt"
)

// Limits of a command.
const (
	MaxPieces = 16 // buffers of a command
	MaxCDB    = 32 // octets of a CDB

	// senseRoom holds the length of the sense data, and the longest sense data (SPC-4
	// §4.5.1).
	senseRoom = 2 + 252
)

// Command is what Queue.Post posts: a SCSI command, or another request.
type Command struct {
	ID        uint64 // cookie of the completion
	LUN       uint64 // 8 octets in network order, as Header.LUN has them
	CDB       []byte // 6 to MaxCDB octets; Post copies them
	Attribute pdu.Attribute

	// In are the buffers for data from the target, and Out the buffers of data to the
	// target, at most MaxPieces and less than 4 GiB. A command has one of them, or neither.
	// Their lengths together are the Expected Data Transfer Length. The buffers belong to
	// the connection until the completion. Post copies the list.
	In, Out [][]byte

	// Request, if set, is a request that is no SCSI command: NOP-Out, Task Management
	// Function Request, Text Request or Logout Request. CDB is not used then. The
	// connection sets the Initiator Task Tag, the sequence numbers and the length. Out is
	// the data segment, and In takes that of the response.
	Request *pdu.Header
}

// Errors of Post. Each rejects the whole command.
var (
	ErrDirections = errors.New("iscsi: a command with both In and Out: bidirectional commands are not supported")
	ErrPieces     = errors.New("iscsi: a command of more than 16 buffers: join some of them, or post several commands")
	ErrLength     = errors.New("iscsi: buffers of 4 GiB and more together: post several commands")
	ErrSegment    = errors.New("iscsi: the data of a request is longer than the target's MaxRecvDataSegmentLength: send less")
	ErrCDB        = errors.New("iscsi: a CDB has 6 to 32 octets")
	ErrRequest    = errors.New("iscsi: only NOP-Out, task management, Text and Logout can be requested besides commands")
	ErrEnded      = errors.New("iscsi: the connection has ended")
)

// Completion is the result of a command.
type Completion struct {
	ID uint64

	// Why is OK if the target has answered. Then Header is the header of the answer: of the
	// SCSI Response, of the Data-In with the status, or of the response to a request. For
	// any other Why the command has failed, and Header is not valid.
	Why    Reason
	Header pdu.Header
	Length uint32 // octets that were transferred
	Sent   bool   // the command has left; false: the target has not seen it

	Sense []byte // sense data of the answer; only an answer with sense data makes Poll allocate
}

// Status returns the SCSI status. It is valid if Why is OK and the command is no Request.
func (c *Completion) Status() uint8 { return c.Header.Status() }

// burst is data that the target may have: the answer to an R2T, or unsolicited data.
type burst struct {
	ttt      pdu.Tag
	off, end uint32 // octets of the command's buffer that have not been sent
	sn       uint32 // DataSN of the next Data-Out
}

// maxR2T is the largest MaxOutstandingR2T that this end serves.
const maxR2T = 8

// task is a command in a slot. It belongs to the poster until it is in the ring of posted
// slots, then to the step until its completion is in the CQ, then to the poller until it is
// in the ring of free slots.
type task struct {
	id     uint64
	queue  *Queue
	header pdu.Header // of the request, and when the task has ended of the answer
	ahs    [4 + MaxCDB - pdu.CDBLen]byte
	extra  int // octets of ahs
	list   [MaxPieces][]byte
	pieces [][]byte // list, as far as it is used
	length uint32   // octets of the pieces
	rights tpt.Rights
	leaves int // octets of the longest data segment that can leave from the buffers; only Post and Cancel use it

	// These fields are of the step.
	tag      tpt.STag
	cmdSN    seq.Num
	received uint32 // octets of Data-In that are there
	dataSN   uint32 // of the next Data-In or R2T
	rest     burst  // unsolicited data
	bursts   [maxR2T]burst
	first    uint8     // index in bursts of the oldest burst
	count    uint8     // bursts that have not been sent
	failed   Reason    // the command cannot succeed any more
	ending   bool      // the task has ended, but a PDU with its data has not left
	moved    bool      // the datamover moves the data of the task
	line     *slotFIFO // where the task waits
	replays  uint8     // how often the task was released to leave again
	told     bool      // the owner knows that the task is kept
	sent     bool
	begun    clock.Instant // when a step saw the task first

	// These fields are the result.
	why    Reason
	placed uint32
	answer int // octets of sense
	sense  [senseRoom]byte

	// cancel asks the step to end the task. It is memory for the rest of a PDU that has
	// begun to leave.
	cancel atomic.Pointer[[]byte]

	busy atomic.Bool // the slot is neither free nor polled
}

// oldest returns the burst to send from.
func (t *task) oldest() *burst { return &t.bursts[t.first] }

// add appends a burst. The caller has checked count.
func (t *task) add(b burst) {
	t.bursts[(t.first+t.count)%maxR2T] = b
	t.count++
}

func (t *task) removeOldest() {
	t.first = (t.first + 1) % maxR2T
	t.count--
}

// set makes t the command c for a connection whose target takes data segments of limit
// octets, and where a Data-Out has at most most octets.
func (t *task) set(c *Command, limit, most int) error {
	in, out := length(c.In), length(c.Out)
	switch {
	case len(c.In) > MaxPieces || len(c.Out) > MaxPieces:
		return ErrPieces
	case in != 0 && out != 0 && c.Request == nil:
		return ErrDirections
	case in > 1<<32-1 || out > 1<<32-1:
		return ErrLength
	case c.Request != nil && out > uint64(limit):
		return ErrSegment
	case c.Request != nil:
		return t.setRequest(c, in)
	case len(c.CDB) < 6 || len(c.CDB) > MaxCDB:
		return ErrCDB
	}
	t.clear(c.ID)
	t.length = uint32(in + out)
	t.header.Reset(pdu.OpCommand)
	t.header.SetLUN(c.LUN)
	t.header.SetEDTL(t.length)
	t.header.SetCDB(c.CDB)
	t.extend(c.CDB)
	flags, list := pdu.Final, c.In
	switch {
	case in != 0:
		flags, t.rights = flags|pdu.Read, tpt.RemoteWrite
	case out != 0:
		flags, t.rights, list = flags|pdu.Write, tpt.RemoteRead, c.Out
		t.leaves = min(most, int(out))
	}
	t.header.SetFlags(flags)
	t.header.SetAttribute(c.Attribute)
	t.pieces = t.list[:copy(t.list[:], list)]
	return nil
}

// setRequest makes t a request that is no command. Its list has the buffers of the answer,
// and then those of the data segment.
func (t *task) setRequest(c *Command, in uint64) error {
	switch c.Request.Opcode() {
	case pdu.OpNOPOut, pdu.OpTask, pdu.OpText, pdu.OpLogout:
	default:
		return ErrRequest
	}
	if len(c.In)+len(c.Out) > MaxPieces {
		return ErrPieces
	}
	t.clear(c.ID)
	t.header = *c.Request
	t.header.SetDataLength(int(length(c.Out)))
	t.length, t.rights, t.leaves = uint32(in), tpt.RemoteWrite, t.header.DataLength()
	n := copy(t.list[:], c.In)
	copy(t.list[n:], c.Out)
	t.pieces = t.list[:n]
	return nil
}

// outgoing returns the list of the data segment of a request that is no command.
func (t *task) outgoing() [][]byte { return t.list[len(t.pieces):] }

// clear makes t an empty task.
func (t *task) clear(id uint64) {
	t.id, t.extra, t.rights, t.leaves = id, 0, 0, 0
	t.renew()
	t.why, t.replays, t.told = OK, 0, false
	t.cancel.Store(nil)
}

// letGo forgets the buffers, so that a task that waits for its next command does not keep
// them alive.
func (t *task) letGo() {
	clear(t.list[:])
	t.pieces = nil
}

// extend makes the additional header segment of a long CDB (RFC 7143 §11.2.2.3).
func (t *task) extend(cdb []byte) {
	if len(cdb) <= pdu.CDBLen {
		return
	}
	clear(t.ahs[:])
	t.ahs[1] = byte(len(cdb) - 15)
	t.ahs[2] = 1
	t.extra = pdu.Padded(4 + copy(t.ahs[4:], cdb[pdu.CDBLen:]))
}

// length returns the number of octets of a list.
func length(list [][]byte) (n uint64) {
	for _, b := range list {
		n += uint64(len(b))
	}
	return n
}

// isCommand reports whether the task is a SCSI command.
func (t *task) isCommand() bool { return t.header.Opcode() == pdu.OpCommand }

// receives reports whether the task is a SCSI command that transfers data from the target.
func (t *task) receives() bool { return t.isCommand() && t.rights == tpt.RemoteWrite }

// result returns the completion of the task.
func (t *task) result() Completion {
	c := Completion{ID: t.id, Why: t.why, Header: t.header, Length: t.placed, Sent: t.sent}
	if t.answer > 2 {
		n := int(t.sense[0])<<8 | int(t.sense[1])
		c.Sense = bytes.Clone(t.sense[2:min(t.answer, 2+n)])
	}
	return c
}
