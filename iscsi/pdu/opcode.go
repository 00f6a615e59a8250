package pdu

import "fmt"

// Opcode is the type of a PDU, six bits (RFC 7143 §11.2.1.2).
type Opcode uint8

// The opcodes of an initiator.
const (
	OpNOPOut  Opcode = 0x00
	OpCommand Opcode = 0x01
	OpTask    Opcode = 0x02
	OpLogin   Opcode = 0x03
	OpText    Opcode = 0x04
	OpDataOut Opcode = 0x05
	OpLogout  Opcode = 0x06
	OpSNACK   Opcode = 0x10
)

// The opcodes of a target.
const (
	OpNOPIn          Opcode = 0x20
	OpResponse       Opcode = 0x21
	OpTaskResponse   Opcode = 0x22
	OpLoginResponse  Opcode = 0x23
	OpTextResponse   Opcode = 0x24
	OpDataIn         Opcode = 0x25
	OpLogoutResponse Opcode = 0x26
	OpR2T            Opcode = 0x31
	OpAsync          Opcode = 0x32
	OpReject         Opcode = 0x3f
)

// opcodes is the number of opcodes that six bits can name.
const opcodes = 0x40

// Info holds the properties of an opcode (RFC 7143 §11).
type Info struct {
	Name   string
	Target bool // targets send the PDU, initiators receive it
	CmdSN  bool // the PDU carries a CmdSN, and advances it unless the PDU is immediate
	StatSN bool // the PDU advances StatSN; two opcodes do so only at times, see AdvancesStatSN
	Data   bool // the PDU may have a data segment
	AHS    bool // the PDU may have additional header segments
}

var infos = [opcodes]Info{
	OpNOPOut:  {Name: "NOP-Out", CmdSN: true, Data: true},
	OpCommand: {Name: "SCSI Command", CmdSN: true, Data: true, AHS: true},
	OpTask:    {Name: "Task Management Function Request", CmdSN: true},
	OpLogin:   {Name: "Login Request", CmdSN: true, Data: true},
	OpText:    {Name: "Text Request", CmdSN: true, Data: true},
	OpDataOut: {Name: "SCSI Data-Out", Data: true},
	OpLogout:  {Name: "Logout Request", CmdSN: true},
	OpSNACK:   {Name: "SNACK Request"},

	OpNOPIn:          {Name: "NOP-In", Target: true, StatSN: true, Data: true},
	OpResponse:       {Name: "SCSI Response", Target: true, StatSN: true, Data: true},
	OpTaskResponse:   {Name: "Task Management Function Response", Target: true, StatSN: true},
	OpLoginResponse:  {Name: "Login Response", Target: true, StatSN: true, Data: true},
	OpTextResponse:   {Name: "Text Response", Target: true, StatSN: true, Data: true},
	OpDataIn:         {Name: "SCSI Data-In", Target: true, StatSN: true, Data: true},
	OpLogoutResponse: {Name: "Logout Response", Target: true, StatSN: true},
	OpR2T:            {Name: "R2T", Target: true},
	OpAsync:          {Name: "Asynchronous Message", Target: true, StatSN: true, Data: true},
	OpReject:         {Name: "Reject", Target: true, StatSN: true, Data: true},
}

// InfoOf returns the row of op. The row of an opcode that RFC 7143 does not define has
// no Name.
func InfoOf(op Opcode) *Info { return &infos[op&(opcodes-1)] }

func (op Opcode) String() string {
	if name := InfoOf(op).Name; name != "" && op < opcodes {
		return name
	}
	return fmt.Sprintf("iSCSI opcode %#02x", uint8(op))
}
