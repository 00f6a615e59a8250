// Package rawpeer is one end of an iWARP connection, made by hand over a plain
// kernel socket: it sends whatever it is told to, right or wrong, and shows
// what comes back as it is.
//
//	frame.go      MPA Requests and Replies
//	fpdu.go       FPDUs and the messages in them
//	marker.go     FPDUs with Markers
//	terminate.go  Terminates, read strictly as RFC 5040 has them
//	peer.go       the socket
//
// It knows no queues, no regions and no states: what a message means is the
// test's affair.
package rawpeer
