package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
)

// rows is the length of everything that is indexed by opcode. It grows with the
// table: the compiler refuses a row behind it.
const rows = wire.OpTerminate + 1

// ops says what a QP does with a segment that has passed the checks of its header,
// by opcode. What the header must be is in the row of wire.Opcode.Info. An opcode
// without a function here is unexpected.
var ops = [rows]func(*QP, *ddp.Segment) Code{
	wire.OpWrite:            (*QP).recvWrite,
	wire.OpReadRequest:      (*QP).recvReadRequest,
	wire.OpReadResponse:     (*QP).recvReadResponse,
	wire.OpSend:             (*QP).recvSend,
	wire.OpSendInvalidate:   (*QP).recvSend,
	wire.OpSendSE:           (*QP).recvSend,
	wire.OpSendSEInvalidate: (*QP).recvSend,
	wire.OpTerminate:        (*QP).recvTerminate,
}

// receiver returns what ops says; nil: the opcode is unexpected.
func receiver(o wire.Opcode) func(*QP, *ddp.Segment) Code {
	if o < rows {
		return ops[o]
	}
	return nil
}

// queues is how many queues of untagged messages there are.
const queues = wire.QueueTerminate + 1
