// Package work holds the work queues that programs and transports meet in: work
// requests, the send and the receive queue of a QP, completions and the
// completion queue. It knows no transport.
//
//	program                                  transport, in its step
//	SendQueue.Post    send.go        ->      Next, Begin; Pop or GiveBack
//	RecvQueue.Post    recv.go        ->      Front, Pop
//	CQ.Poll           cq.go          <-      CQ.Push
//
// The rings can lie in memory that is handed in, which another process maps:
// layout.go has the layout, and what the transport relies on.
//
// The types SGE, SendWR, RecvWR and Completion, and the constants of this
// package, are part of the public API: package rdma has aliases for them.
package work
