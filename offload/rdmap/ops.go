package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
)

// rows is the length of every table that is indexed by opcode. rows grows with the
// opcodes of package wire. The compiler refuses a row for a larger opcode.
const rows = wire.OpTerminate + 1

// ops is indexed by opcode. Each function processes a segment whose header is correct.
// The row of wire.InfoOf says what a correct header is. An opcode without a function
// here is unexpected.
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

// receiver returns the function of ops for the opcode, or nil if the opcode is
// unexpected.
func receiver(o wire.Opcode) func(*QP, *ddp.Segment) Code {
	if o < rows {
		return ops[o]
	}
	return nil
}

// queues is the number of queues of untagged messages.
const queues = wire.QueueTerminate + 1
