// Package report contains the report that an engine gives to tools. The report is plain
// values. `stag show` and the control socket give these values out as JSON.
//
//	Engine            one adapter of one process
//	 ├ Device         a port; Port, its moves of connections
//	 ├ Flow           a connection that was taken over; Queue, its AF_XDP queues
//	 ├ QP, CQ, MR     the verbs' objects
//	 ├ Session, LUN   iSCSI sessions, and logical units that are served or used
//	 └ Counter        what was counted, by layer and name
//	Parts             the parts of the report that a tool asks for (parts.go)
//	Filter, Batch     the request and the packets of a capture (capture.go)
//
// The methods Columns, Line, Details, Connection and Limits return the text of `stag show`.
// The words may change from version to version: a program uses the fields or JSON.
//
// schema.json describes the same values for other programs. Sizes are in octets and
// times in microseconds unless a name says otherwise. Within one Schema no field is
// removed or given another meaning.
package report
