package pdu

import "fmt"

// Fault is the reason for refusing a header: a value that no state of a connection
// permits. RFC 7143 §7.7 calls it a format error.
type Fault uint8

const (
	OK Fault = iota
	UnknownOpcode
	UnexpectedAHS  // the opcode has no additional header segments
	UnexpectedData // the opcode has no data segment, or this PDU may not have one
	BadTag         // a tag is missing, or two tags exclude each other
	BadFlags       // flags exclude each other, or one is missing
	BadLength      // a length of 0, or more data than the command expects
	BadStage       // a stage of the login that does not exist, or that is not later
)

var faults = [...]string{
	OK:             "no fault",
	UnknownOpcode:  "unknown opcode",
	UnexpectedAHS:  "additional header segment in a PDU that has none",
	UnexpectedData: "data segment in a PDU that has none",
	BadTag:         "tag missing, or two tags that exclude each other",
	BadFlags:       "flags that exclude each other, or a flag missing",
	BadLength:      "length 0, or more data than the command expects",
	BadStage:       "login stage that does not exist or is not later",
}

func (f Fault) String() string {
	if int(f) < len(faults) {
		return faults[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// checks has a row for each opcode with rules of its own.
var checks = [opcodes]func(*Header) Fault{
	OpCommand:       (*Header).checkCommand,
	OpLogin:         (*Header).checkLogin,
	OpLoginResponse: (*Header).checkLogin,
	OpText:          (*Header).checkText,
	OpTextResponse:  (*Header).checkText,
	OpResponse:      (*Header).checkResponse,
	OpDataIn:        (*Header).checkDataIn,
	OpR2T:           (*Header).checkR2T,
	OpNOPIn:         (*Header).checkNOPIn,
	OpAsync:         (*Header).checkNoTask,
	OpReject:        (*Header).checkNoTask,
}

// noTask are the opcodes whose Initiator Task Tag may be NoTag.
var noTask = [opcodes]bool{OpNOPOut: true, OpNOPIn: true, OpSNACK: true, OpAsync: true, OpReject: true}

// Check finds values that no state of a connection permits. It does not find values that
// only the state of the connection, of the task or of the negotiation forbids, and it
// does not read reserved fields.
func (h *Header) Check() Fault {
	op := h.Opcode()
	info := InfoOf(op)
	switch {
	case info.Name == "":
		return UnknownOpcode
	case h.AHSLength() != 0 && !info.AHS:
		return UnexpectedAHS
	case h.DataLength() != 0 && !info.Data:
		return UnexpectedData
	case h.InitiatorTaskTag() == NoTag && !noTask[op]:
		return BadTag
	}
	if check := checks[op]; check != nil {
		return check(h)
	}
	return OK
}

// checkCommand: RFC 7143 §11.3.1 and §11.3.4. Data without Final follows only in a write.
func (h *Header) checkCommand() Fault {
	write := h.Has(Write)
	switch {
	case !write && !h.Final():
		return BadFlags
	case !write && h.DataLength() != 0:
		return UnexpectedData
	case !write && !h.Has(Read) && h.EDTL() != 0, uint64(h.DataLength()) > uint64(h.EDTL()):
		return BadLength
	}
	return OK
}

// checkLogin: RFC 7143 §11.12. The stages are 0, 1 and 3.
func (h *Header) checkLogin() Fault {
	const noStage Stage = 2
	transit := h.Has(Transit)
	switch {
	case transit && h.Has(Continue):
		return BadFlags
	case h.CurrentStage() >= noStage, transit && (h.NextStage() == noStage || h.NextStage() <= h.CurrentStage()):
		return BadStage
	}
	return OK
}

// checkText: RFC 7143 §11.10.1. A text that goes on is not final.
func (h *Header) checkText() Fault {
	if h.Has(Final | Continue) {
		return BadFlags
	}
	return OK
}

// checkResponse: RFC 7143 §11.4.1.
func (h *Header) checkResponse() Fault {
	if h.Has(Overflow|Underflow) || h.Has(BidiOverflow|BidiUnderflow) {
		return BadFlags
	}
	return OK
}

// checkDataIn: RFC 7143 §11.7.3. Status is only in the last PDU of a sequence.
func (h *Header) checkDataIn() Fault {
	if h.Has(Overflow|Underflow) || h.Has(StatusPresent) && !h.Final() {
		return BadFlags
	}
	return OK
}

// checkR2T: RFC 7143 §11.8.
func (h *Header) checkR2T() Fault {
	switch {
	case h.TargetTransferTag() == NoTag:
		return BadTag
	case h.DesiredLength() == 0:
		return BadLength
	}
	return OK
}

// checkNOPIn: RFC 7143 §11.19. A NOP-In answers a ping, or it is one, or it is neither
// and has no data.
func (h *Header) checkNOPIn() Fault {
	ping := h.InitiatorTaskTag() == NoTag
	switch {
	case !ping && h.TargetTransferTag() != NoTag:
		return BadTag
	case ping && h.DataLength() != 0:
		return UnexpectedData
	}
	return OK
}

// checkNoTask: RFC 7143 §11.9 and §11.17. The PDU belongs to no task.
func (h *Header) checkNoTask() Fault {
	if h.InitiatorTaskTag() != NoTag {
		return BadTag
	}
	return OK
}
