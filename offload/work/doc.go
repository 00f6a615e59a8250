// Package work holds the work queues that programs and transports meet in: work
// requests, the send and the receive queue of a QP, completions and the
// completion queue. It knows no transport.
//
//	program                                  transport, in its step
//	SendQueue.Post, RecvQueue.Post  ->       starts the oldest, completes it
//	CQ.Poll                         <-       CQ.Push
//
// The types SGE, SendWR, RecvWR and Completion, and the constants of this
// package, are part of the public API: package rdma has aliases for them.
package work
