package dump

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/offload/wire"
)

// Kind is the kind of a packet. The beginning of the payload determines it.
type Kind string

const (
	Write        Kind = "write"
	ReadRequest  Kind = "read-request"
	ReadResponse Kind = "read-response"
	Send         Kind = "send" // a Send of any type
	Terminate    Kind = "terminate"

	Immediate      Kind = "immediate" // Immediate Data, with or without Solicited Event
	AtomicRequest  Kind = "atomic-request"
	AtomicResponse Kind = "atomic-response"

	// PDUs of iSCSI, and the answers to them. A flow of kind iscsi has these.
	Command  Kind = "scsi-command"
	Response Kind = "scsi-response"
	DataIn   Kind = "data-in"
	DataOut  Kind = "data-out"
	R2T      Kind = "r2t"
	Task     Kind = "task" // task management
	NOP      Kind = "nop"
	Login    Kind = "login"
	Text     Kind = "text"
	Logout   Kind = "logout"
	SNACK    Kind = "snack"
	Async    Kind = "async"
	Reject   Kind = "reject"

	Ack   Kind = "ack"   // a segment without payload, also a FIN or RST
	Data  Kind = "data"  // payload that begins neither with an FPDU nor with a PDU
	ICMP  Kind = "icmp"  // a router's message that a packet was too big
	Other Kind = "other" // a packet that cannot be parsed
)

// Kinds has every value of Kind, in the order in which messages list them.
var Kinds = []Kind{
	Write, ReadRequest, ReadResponse, Send, Terminate, Immediate, AtomicRequest, AtomicResponse,
	Command, Response, DataIn, DataOut, R2T, Task, NOP, Login, Text, Logout, SNACK, Async, Reject,
	Ack, Data, ICMP, Other,
}

// ParseKinds converts names to kinds. It ignores spaces around a name. The error names an
// unknown name and all possible names.
func ParseKinds(list []string) (kinds []Kind, err error) {
	for _, name := range list {
		k := Kind(strings.TrimSpace(name))
		if !slices.Contains(Kinds, k) {
			return nil, fmt.Errorf("no kind %q: choose of %s", k, KindNames())
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// KindNames returns all kinds, separated by commas.
func KindNames() string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ",")
}

// kindOf returns the kind of an operation. ok is false for an operation that stag does not
// implement.
func kindOf(op wire.Opcode) (k Kind, ok bool) {
	switch op {
	case wire.OpWrite:
		return Write, true
	case wire.OpReadRequest:
		return ReadRequest, true
	case wire.OpReadResponse:
		return ReadResponse, true
	case wire.OpSend, wire.OpSendInvalidate, wire.OpSendSE, wire.OpSendSEInvalidate, wire.OpSendImm, wire.OpSendSEImm:
		return Send, true
	case wire.OpTerminate:
		return Terminate, true
	case wire.OpImmediate, wire.OpImmediateSE:
		return Immediate, true
	case wire.OpAtomicRequest:
		return AtomicRequest, true
	case wire.OpAtomicResponse:
		return AtomicResponse, true
	}
	return "", false
}
