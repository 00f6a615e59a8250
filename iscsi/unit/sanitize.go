package unit

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// planSanitize checks SANITIZE (SBC-3 §5.19). An overwrite has a parameter list.
func planSanitize(_ *Unit, t *Task) Sense {
	if t.row.sa != overwriteAction {
		return Sense{}
	}
	n := binary.BigEndian.Uint16(t.CDB[7:])
	if n < 5 {
		return badField(7)
	}
	t.out(uint32(n))
	return Sense{}
}

const (
	opSanitize      = 0x48
	overwriteAction = 1

	overwriteInvert = 0x80 // octet 0 of the parameter list
	overwriteTest   = 0x60
	overwriteCount  = 0x1f
)

// overwrite begins SANITIZE with the service action OVERWRITE (SBC-3 §5.19.2.3).
func (u *Unit) overwrite(t *Task) Sense {
	b := t.Data
	n := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case b[0]&overwriteTest != 0 || b[0]&overwriteCount == 0:
		return badParameter(0)
	case n == 0 || n > u.conf.BlockSize || n != len(b)-4:
		return badParameter(2)
	}
	pattern := make([]byte, u.conf.BlockSize)
	for i := range pattern {
		pattern[i] = b[4+i%n]
	}
	u.sanitizing = &Sanitize{unit: u, claim: u.pass(t), pattern: pattern, passes: int(b[0] & overwriteCount), invert: b[0]&overwriteInvert != 0}
	return Sense{}
}

// blockErase begins SANITIZE with the service action BLOCK ERASE: all blocks are zero
// afterwards.
func (u *Unit) blockErase(t *Task) Sense {
	u.sanitizing = &Sanitize{unit: u, claim: u.pass(t), passes: 1}
	return Sense{}
}

// Sanitize is a sanitize operation that goes on (SBC-3 §4.11). While it does, the unit is
// not ready: other commands end with LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS, and how
// far the operation is. A logical unit reset does not end it.
type Sanitize struct {
	unit    *Unit
	claim   Claim
	pattern []byte // of a block; nil: erase
	passes  int
	invert  bool // each pass inverts the pattern of the one before

	pass  int
	block uint64        // first block that is missing in this pass
	far   atomic.Uint32 // progress in 65536ths
	sense Sense         // why the operation has failed
}

// Sanitizing returns the operation that Run of a task has begun, or nil. The transport then
// calls Step until it returns false, and End. If the bit IMMED is not set, the task ends
// with End, and otherwise with Run.
func (u *Unit) Sanitizing(t *Task) *Sanitize {
	if t.row.flags&atomically == 0 || t.row.op != opSanitize || t.Status != Good {
		return nil
	}
	return u.sanitizing
}

// sanitizeStep is how many octets Step writes.
const sanitizeStep = 4 << 20

// Step executes the next part of the operation, and reports whether there is more. Only one
// goroutine at a time may call it. Run of other tasks may be concurrent.
func (s *Sanitize) Step() (more bool) {
	u := s.unit
	n := uint32(min(sanitizeStep>>u.shift, u.blocks-s.block))
	switch {
	case s.pattern != nil:
		s.sense = u.fill(s.block, u.octets(n), s.pattern)
	case u.thin():
		s.sense = u.discard(s.block, n)
	default:
		s.sense = u.zero(s.block, n)
	}
	if s.block += uint64(n); s.block == u.blocks && !s.sense.failed() {
		s.sense = u.sync()
		s.pass++
		s.block = 0
		if s.invert {
			for i := range s.pattern {
				s.pattern[i] = ^s.pattern[i]
			}
		}
	}
	s.far.Store(uint32((float64(s.pass) + float64(s.block)/float64(u.blocks)) / float64(s.passes) * 65535))
	return !s.sense.failed() && s.pass < s.passes
}

// End ends the operation, and t, if it is not nil. If the operation has failed or is not
// complete, the unit refuses commands to the medium until another operation succeeds or
// EXIT FAILURE MODE comes. The caller serializes End as Run of an exclusive task.
func (s *Sanitize) End(t *Task) {
	u := s.unit
	u.sanitizing = nil
	s.claim.add(-oneClaim)
	if u.unclean = s.sense.failed() || s.pass < s.passes; u.unclean && t != nil {
		t.fail(Sense{Key: MediumError, Code: scsi.SanitizeFailed})
	}
	u.publish()
}

// inProgress is the sense of a unit that is being sanitized.
func (s *Sanitize) inProgress() Sense {
	return Sense{Key: NotReady, Code: scsi.SanitizeInProgress, Progress: uint16(s.far.Load()), HasProgress: true}
}

// Immediate reports whether a task ends before what it has begun (IMMED, SBC-3 §5.19).
func (t *Task) Immediate() bool { return t.CDB[1]&0x80 != 0 }

// exitFailureMode executes SANITIZE with the service action EXIT FAILURE MODE.
func (u *Unit) exitFailureMode(*Task) Sense {
	u.unclean = false
	return Sense{}
}
