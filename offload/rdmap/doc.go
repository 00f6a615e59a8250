// Package rdmap is RDMAP (RFC 5040) over DDP over MPA: one connection's QP as a
// machine between work queues (package work) and a stream, without input or output
// of its own.
//
// One received FPDU, one name per step:
//
//	mpa.Deframer.Next -> QP.segment -> ops[opcode]               rx.go, ops.go
//	    Write, Read Response: tpt.Check, copy                    rx.go, read.go
//	    Send: receive queue, scatter, deliver -> CQ.Push         rx.go
//	    Read Request: queue of inbound Reads                     read.go
//	    Terminate: cause, flush                                  end.go
//
// and one posted work request:
//
//	QP.PostSend -> doorbell -> QP.begin -> sqOps[operation]      qp.go, begin.go, requests.go
//	    -> gather (tpt.Check)                                    gather.go
//	    -> ddp.Message.Cut -> mpa.Framer.Begin, End              tx.go
//	    -> retire -> CQ.Push                                     end.go
//	nothing has come back: an empty Write                        nudge.go
//
// Three kinds of goroutine call a QP's methods: the one that steps the stream (all
// methods of stream.ULP), those that post (PostSend, PostRecv; one at a time for each
// queue), and those that poll a CQ (one at a time). They share rings and atomic words
// only.
//
// Part of the API of stag: Error, Cause, Code, State. Package rdma has aliases of them.
package rdmap
