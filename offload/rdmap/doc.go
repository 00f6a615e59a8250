// Package rdmap implements RDMAP (RFC 5040) over DDP over MPA. A QP of this package is
// the state machine of one connection, between work queues (package work) and a stream.
// The package does no I/O.
//
// One received FPDU, one name per step:
//
//	mpa.Deframer.Next -> QP.segment -> ops[opcode]               rx.go, ops.go
//	    Write, Read Response: tpt.Check, copy                    rx.go, read.go
//	    Send: receive queue, scatter, deliver -> CQ.Push         rx.go
//	    Read Request: queue of inbound Reads                     read.go
//	    Terminate: cause, flush                                  end.go
//
// One posted work request:
//
//	QP.PostSend -> doorbell -> QP.begin -> sqOps[operation]      qp.go, begin.go, requests.go
//	    -> gather (tpt.Check)                                    gather.go
//	    -> ddp.Message.Cut -> mpa.Framer.Begin, End              tx.go
//	    -> retire -> CQ.Push                                     end.go
//	nothing has come back: an empty Write                        nudge.go
//
// Three kinds of goroutines call a QP's methods. One goroutine steps the stream and
// calls all methods of stream.ULP. Posters call PostSend and PostRecv, one poster at a
// time for each queue. Pollers poll a CQ, one at a time. These goroutines share only
// rings and atomic words.
//
// Part of the API of stag: Error, Cause, Code, State. Package rdma has aliases of them.
package rdmap
