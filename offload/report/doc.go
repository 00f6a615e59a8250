// Package report is what an engine says about itself to tools: plain values
// that are the JSON of `stag show`, of the control socket and of nothing else.
//
//	Engine            one adapter of one process
//	 ├ Device         a port
//	 ├ Flow           a connection that was taken over; Queue, its AF_XDP queues
//	 ├ QP, CQ, MR     the verbs' objects
//	 └ Counter        what was counted, by layer and name
//	Parts             what of it is asked for (parts.go)
//	Filter, Batch     what a capture asks for, and gets (capture.go)
//
// schema.json says the same to others. Sizes are octets and times microseconds unless a name says otherwise. A field
// is never taken away or given another meaning within one Schema.
package report
