// Package report is an engine's report of itself to tools: plain values, which are the
// JSON of `stag show` and of the control socket, and of nothing else.
//
//	Engine            one adapter of one process
//	 ├ Device         a port
//	 ├ Flow           a connection that was taken over; Queue, its AF_XDP queues
//	 ├ QP, CQ, MR     the verbs' objects
//	 └ Counter        what was counted, by layer and name
//	Parts             what of it is asked for (parts.go)
//	Filter, Batch     what a capture asks for, and gets (capture.go)
//
// schema.json describes the same for other programs. Sizes are octets and times
// microseconds unless a name says otherwise. Within one Schema no field is removed or
// given another meaning.
package report
