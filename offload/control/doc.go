// Package control is the socket from which tools read the state of a running engine, and
// by which they drain its ports, and the client of that socket.
//
//	server.go   the engine's side: Serve, which callers may ask
//	callers.go  the callers that get an answer now, so that Close cuts none off
//	peer.go     which process is at the other end, for both sides
//	find.go     the tools' side: Engines, Endpoint
//	client.go   requests to an Endpoint
//	dir.go      directories and names of the sockets, removal of dead ones
//	capture.go  packets, as a stream of batches
//	drain.go    draining of a port, with its progress
//	upgrade.go  upgrade of the process, with its progress
//	encode.go, decode.go, frames.go   the contents of answers, and how to
//	            read them without trust
//
// The protocol is HTTP over a unix socket of mode 0600, so that curl --unix-socket
// works:
//
//	GET /v1/report            report.Engine as JSON
//	GET /v1/report?parts=...  only the parts that are named, such as devices,counts
//	GET /v1/capture?...       a stream of report.Batch in the format of frames.go
//	POST /v1/drain?device=    drains a port: lines of report.Drain as JSON, the last one with done
//	POST /v1/upgrade          starts the successor of the process and hands everything over: lines of report.Upgrade
//	POST /v1/undrain?device=  lets connections come to the port again; the same answer
//
// Only root and the engine's own user get answers, whatever the mode of the file. The
// kernel says which user is at the other end (SO_PEERCRED). Tools also ask the kernel
// for the pid and the user of an engine. Tools ignore an engine in a directory of
// another user.
package control
