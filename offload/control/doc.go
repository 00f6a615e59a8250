// Package control is the socket by which tools read the state of a running engine, and
// the client for it.
//
//	server.go   the engine's side: Serve, which callers may ask
//	callers.go  the callers that are being answered, so that Close cuts none off
//	peer.go     which process is at the other end, for both sides
//	find.go     the tools' side: Engines, Endpoint
//	client.go   requests to an Endpoint
//	dir.go      directories and names of the sockets, removal of dead ones
//	capture.go  packets, as a stream of batches
//	encode.go, decode.go, frames.go   the contents of answers, and how they are
//	            read without trust in them
//
// It is HTTP over a unix socket of mode 0600, so that curl --unix-socket works:
//
//	GET /v1/report            report.Engine as JSON
//	GET /v1/report?parts=...  as much of it as is asked for, such as devices,counts
//	GET /v1/capture?...       a stream of report.Batch, as frames.go has it
//
// Only root and the user that the engine runs as get answers, whatever the file's mode:
// the kernel says which user is at the other end (SO_PEERCRED). Tools ask the kernel,
// too, for the pid and the user of an engine, and an engine counts only in a directory
// of its own user's.
package control
