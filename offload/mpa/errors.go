package mpa

import (
	"errors"
	"fmt"
)

// FrameError is the error of a malformed Request or Reply. The caller must close the
// connection without an answer (RFC 5044 §7.1.2).
type FrameError struct{ Problem string }

func (e *FrameError) Error() string { return "MPA: " + e.Problem }

// ErrMarkersRefused means that the Request asked for Markers and the peer rejected the
// connection without private data. Linux siw and other peers without Markers reject in
// this way. An application that gives no reason also rejects in this way.
var ErrMarkersRefused = errors.New("it may have no Markers: try without them")

// Rejected is the error of a Reply that refuses the connection. Usually the
// responder's application has refused it.
type Rejected struct {
	Private []byte // private data of the responder's application; may be empty

	// PeerIRD and PeerORD are the depths in the Reply. Both are 0 if the Reply has no
	// depths.
	PeerIRD, PeerORD uint16

	// Markers is true if the Request asked for Markers and the Reply gives no other
	// reason. In this case the error wraps ErrMarkersRefused.
	Markers bool
}

func (e *Rejected) Error() string {
	what := fmt.Sprintf("MPA: the peer rejected the connection, with %d octets of private data", len(e.Private))
	if e.Markers {
		what += ": " + ErrMarkersRefused.Error()
	}
	return what
}

// Unwrap returns ErrMarkersRefused if Markers may be the reason, otherwise nil.
func (e *Rejected) Unwrap() error {
	if e.Markers {
		return ErrMarkersRefused
	}
	return nil
}

// Mismatch is the error of a well-formed Reply that the initiator cannot accept. The
// initiator must send a Terminate (layer 2, type 0, Code) and close the connection (RFC
// 6581 §8).
type Mismatch struct {
	Code uint8 // CodeInsufficientIRD or CodeNoRTR
	// Peer and Ours describe in words what the two ends offered.
	Peer, Ours string
}

func (e *Mismatch) Error() string { return "MPA: the peer's Reply " + e.Peer + ", but " + e.Ours }

func frameError(format string, args ...any) error {
	return &FrameError{fmt.Sprintf(format, args...)}
}
