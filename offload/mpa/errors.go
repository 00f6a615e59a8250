package mpa

import (
	"errors"
	"fmt"
)

// FrameError is a Request or Reply that cannot be worked with. The connection
// is closed without an answer (RFC 5044 §7.1.2).
type FrameError struct{ Problem string }

func (e *FrameError) Error() string { return "MPA: " + e.Problem }

// ErrMarkersRefused: Markers were asked for, and the peer rejected the
// connection without a word. Linux siw and other peers that have no Markers do
// so; an application that has no reason to give does it as well.
var ErrMarkersRefused = errors.New("it may have no Markers: try without them")

// Rejected says that the responder does not want the connection:
// its application as a rule.
type Rejected struct {
	Private []byte // what it has to say about it; may be empty

	// What it could have offered, as sent; 0 where it says nothing.
	PeerIRD, PeerORD uint16

	// Markers says that the Request asked for them, and that nothing is said
	// about another reason: the error is ErrMarkersRefused.
	Markers bool
}

func (e *Rejected) Error() string {
	what := fmt.Sprintf("MPA: the peer rejected the connection, with %d octets of private data", len(e.Private))
	if e.Markers {
		what += ": " + ErrMarkersRefused.Error()
	}
	return what
}

// Unwrap is ErrMarkersRefused where that may be the reason.
func (e *Rejected) Unwrap() error {
	if e.Markers {
		return ErrMarkersRefused
	}
	return nil
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
