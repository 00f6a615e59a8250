// Package work contains the work queues between programs and transports: work requests,
// the send and the receive queue of a QP, completions and the completion queue. The
// package depends on no transport.
//
//	program                                  transport, in its step
//	SendQueue.Post    send.go        ->      Next, Begin; Pop or GiveBack
//	RecvQueue.Post    recv.go        ->      Front, Pop
//	SharedQueue.Post  shared.go      ->      RecvQueue.Front of several QPs
//	CQ.Poll           cq.go          <-      CQ.Push
//
// The rings can lie in memory that the caller passes and that another process maps.
// layout.go contains the layout and says what the transport relies on.
//
// Part of the API of stag: SGE, SendWR, RecvWR, WROp, SendFlags, Access, Completion,
// WCOp, Status, and their constants. Package rdma has aliases of them.
package work
