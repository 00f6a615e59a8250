package unit

import "github.com/stag-rdma/stag/iscsi/scsi"

// Direction says which way the data of a command goes.
type Direction byte

// Directions.
const (
	NoData  Direction = iota
	DataIn            // from the unit to the initiator
	DataOut           // from the initiator to the unit
)

// Status is a SCSI status code (SAM-5 §5.3.1).
type Status = scsi.Status

// The status codes that units use.
const (
	Good                = scsi.Good
	CheckCondition      = scsi.CheckCondition
	Busy                = scsi.Busy
	ReservationConflict = scsi.ReservationConflict
	TaskSetFull         = scsi.TaskSetFull
	TaskAborted         = scsi.TaskAborted
)

// CDBLength is the longest CDB that a unit takes, in octets.
const CDBLength = 16

// Task is one command. The transport fills the first group of fields, and passes the
// task to Begin. If Begin returns true, the transport gets memory for the data, moves
// Data-Out into it, and calls Run. Data-In is in the memory afterwards.
//
// A Task may be used again after Run, or after Begin has returned false.
type Task struct {
	Nexus *Nexus
	CDB   [CDBLength]byte
	EDTL  uint32 // Expected Data Transfer Length in octets

	// Begin sets these.
	Dir  Direction
	Want uint32 // octets of data that the CDB stands for: SPDTL, or its bound if Dir is DataIn

	// Data is the memory of the data, of min(Want, EDTL) octets. It is the transport's,
	// or the memory that Unit.Lend returned.
	Data []byte
	Lent bool // Data is what Lend returned

	// Begin (if it returns false) and Run set these.
	Status Status
	Sense  Sense
	Length uint32 // octets of Data-In that the command has: SPDTL

	row     *row
	lba     uint64
	blocks  uint32
	loaned  bool // Lend has lent memory for a write, and Settle has not come
	claimed bool // Claim has claimed, and Run has not come

	// Order's
	attribute Attribute
	next      *Task
}

// Exclusive reports whether Run of this task must not run at the same time as Run or
// Begin of another task of the unit. The value is valid after Begin.
func (t *Task) Exclusive() bool { return t.row.flags&exclusive != 0 || t.row.flags&medium == 0 }

// UsesMedium reports whether Run of this task uses the medium. Run of an exclusive task that
// does not may run beside Run of those that are not exclusive. The value is valid after Begin.
func (t *Task) UsesMedium() bool { return t.row.flags&medium != 0 }

// Residual returns by how many octets the command's data differ from EDTL (RFC 7143
// §11.4.5). At most one of over and under is not 0.
func (t *Task) Residual() (over, under uint32) {
	n := t.Length
	if t.Dir == DataOut {
		n = t.Want
	}
	if n > t.EDTL {
		return n - t.EDTL, 0
	}
	return 0, t.EDTL - n
}

// fail ends the task with CHECK CONDITION.
func (t *Task) fail(s Sense) {
	t.Status, t.Sense, t.Length = CheckCondition, s, 0
}

// reset forgets what an earlier command has left.
func (t *Task) reset() {
	t.Dir, t.Want, t.Data, t.Lent = NoData, 0, nil, false
	t.Status, t.Sense, t.Length = Good, Sense{}, 0
	t.row, t.lba, t.blocks = nil, 0, 0
}

// put copies p to the task's Data-In, as far as Data goes. n is at most the allocation
// length of the CDB.
func (t *Task) put(p []byte) {
	p = p[:min(len(p), int(t.Want))]
	copy(t.Data, p)
	t.Length = uint32(len(p))
}
