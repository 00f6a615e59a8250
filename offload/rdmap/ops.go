package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
)

// rows is the length of every table that is indexed by opcode. rows grows with the
// opcodes of package wire. The compiler refuses a row for a larger opcode.
const rows = wire.OpSendSEImm + 1

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
	wire.OpImmediate:        (*QP).recvImmediate,
	wire.OpImmediateSE:      (*QP).recvImmediate,
	wire.OpAtomicRequest:    (*QP).recvAtomicRequest,
	wire.OpAtomicResponse:   (*QP).recvAtomicResponse,
	wire.OpSendImm:          (*QP).recvSend,
	wire.OpSendSEImm:        (*QP).recvSend,
}

// receiver returns the function of ops for the opcode, or nil if the opcode is
// unexpected. Opcodes of RFC 7306 are unexpected unless both ends speak it, and so are those
// of ExtImmediate.
func (q *QP) receiver(o wire.Opcode) func(*QP, *ddp.Segment) Code {
	switch {
	case o >= rows:
		return nil
	case o <= wire.OpTerminate, o <= wire.OpAtomicResponse && q.agree.RFC7306, q.shortImm():
		return ops[o]
	}
	return nil
}

// queues is the number of queues of untagged messages.
const queues = wire.QueueAtomicResponse + 1
