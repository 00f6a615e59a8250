package mpa

import "fmt"

// FrameError is a Request or Reply that cannot be worked with. The connection
// is closed without an answer (RFC 5044 §7.1.2).
type FrameError struct{ Problem string }

func (e *FrameError) Error() string { return "MPA: " + e.Problem }

// Rejected says that the responder's application does not want the connection.
type Rejected struct {
	Private []byte // what it has to say about it; may be empty

	// What it could have offered, as sent; 0 where it says nothing.
	PeerIRD, PeerORD uint16
}

func (e *Rejected) Error() string {
	return fmt.Sprintf("MPA: the peer rejected the connection, with %d octets of private data", len(e.Private))
}

// Mismatch is a sound Reply that the initiator cannot agree to. It sends a
// Terminate (layer 2, type 0, Code) and closes (RFC 6581 §8).
type Mismatch struct {
	Code uint8 // CodeInsufficientIRD or CodeNoRTR
	// Peer and Ours are what was compared, in words.
	Peer, Ours string
}

func (e *Mismatch) Error() string { return "MPA: the peer's Reply " + e.Peer + ", but " + e.Ours }

func frameError(format string, args ...any) error {
	return &FrameError{fmt.Sprintf(format, args...)}
}
