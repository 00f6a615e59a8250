// Package rawpeer is one end of an iWARP connection over a plain kernel socket. It
// sends the octets that a test asks for, correct or malformed, and returns the received octets
// unchanged.
//
//	frame.go      MPA Requests and Replies
//	fpdu.go       FPDUs and the messages in them
//	marker.go     FPDUs with Markers
//	terminate.go  Terminates, read strictly by RFC 5040
//	peer.go       the socket
//
// The package has no queues, regions or states. The test interprets the messages.
package rawpeer
