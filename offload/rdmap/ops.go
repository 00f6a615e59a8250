package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
)

// op is what a QP knows about an opcode (RFC 5040 §4.1 to §4.3).
type op struct {
	tagged bool
	queue  uint32 // untagged: where its messages are numbered
	recv   func(*QP, *ddp.Segment) Code
}

// ops has a row for each opcode; one without a handler is unexpected.
var ops [16]op

// The handlers refer to the table through the QP's methods, hence init.
func init() {
	ops = [16]op{
		wire.OpWrite:            {tagged: true, recv: (*QP).recvWrite},
		wire.OpReadRequest:      {queue: wire.QueueReadRequest, recv: (*QP).recvReadRequest},
		wire.OpReadResponse:     {tagged: true, recv: (*QP).recvReadResponse},
		wire.OpSend:             {queue: wire.QueueSend, recv: (*QP).recvSend},
		wire.OpSendInvalidate:   {queue: wire.QueueSend, recv: (*QP).recvSend},
		wire.OpSendSE:           {queue: wire.QueueSend, recv: (*QP).recvSend},
		wire.OpSendSEInvalidate: {queue: wire.QueueSend, recv: (*QP).recvSend},
		wire.OpTerminate:        {queue: wire.QueueTerminate, recv: (*QP).recvTerminate},
	}
}
