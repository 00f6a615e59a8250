// Package flow implements the data path of one iSCSI connection in the full feature phase
// (RFC 7143), as upper-layer protocols of package stream. It does no I/O, starts no
// goroutine and takes no lock.
//
// The parts that both roles have:
//
//	rx.go       the stream, cut into PDUs; the data segment goes straight to its place
//	tx.go       a PDU, gathered into the segments of the stream
//	scatter.go  a position in a list of buffers
//	reason.go   why a PDU, a command or a connection is refused
//
// The receiver assembles no PDU. It collects the header, verifies the header's digest, and
// asks the role where the data segment goes. Then it copies each view of the stream to that
// place, and digests the octets in the same pass. A data digest is known only behind the
// last octet, so the octets are in place before: until the command ends, the content of its
// buffer is undefined. If the digest is wrong, the command fails.
package flow
