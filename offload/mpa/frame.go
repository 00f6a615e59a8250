package mpa

import (
	"bytes"
	"fmt"

	"github.com/stag-rdma/stag/offload/wire"
)

// The revisions of the protocol that this package speaks.
const (
	revisionPlain    = 1 // RFC 5044
	revisionEnhanced = 2 // RFC 6581
)

// FrameLength returns the length of a Request or Reply in octets. first must be the
// first wire.MPAFrameLen octets of the frame. The error is a *FrameError: first is not
// the start of an MPA frame, or the frame announces more than 512 octets of private
// data.
func FrameLength(first []byte) (total int, err error) {
	h, _, ok := wire.ParseMPA(first)
	if !ok {
		return 0, noFrame(first)
	}
	if n := h.PrivateLen(); n > wire.MPAMaxPrivate {
		return 0, frameError("the peer's frame announces %d octets of private data; %d are allowed", n, wire.MPAMaxPrivate)
	}
	return wire.MPAFrameLen + h.PrivateLen(), nil
}

func noFrame(b []byte) error {
	if len(b) < wire.MPAFrameLen {
		return frameError("the peer's frame ends after %d octets; it needs %d", len(b), wire.MPAFrameLen)
	}
	return frameError("the peer does not speak MPA: it begins with %q", b[:len(wire.MPARequestKey)])
}

// parsed holds the fields of a frame.
type parsed struct {
	flags    wire.MPAFlags
	revision uint8
	enhanced bool
	block    wire.MPAEnhancedFields
	private  []byte // private data of the application; a part of the frame's memory
}

// parse parses a whole frame. The frame must be a Reply if reply is set, otherwise a
// Request.
func parse(frame []byte, reply bool) (p parsed, err error) {
	total, err := FrameLength(frame)
	if err != nil {
		return p, err
	}
	if len(frame) != total {
		return p, frameError("the peer's frame has %d octets, but announces %d", len(frame), total)
	}
	h, private, _ := wire.ParseMPA(frame)
	switch {
	case h.Reply() && !reply:
		return p, frameError("the peer sent a Reply without being asked")
	case !h.Reply() && reply:
		return p, frameError("the peer sent a Request instead of a Reply: both ends are initiators")
	}
	p = parsed{flags: h.Flags(), revision: h.Revision(), private: private}
	// In other revisions the flag is a reserved bit or has no known meaning.
	p.enhanced = p.revision == revisionEnhanced && p.flags.Has(wire.MPAEnhanced)
	if p.enhanced {
		var ok bool
		if p.block, p.private, ok = wire.ParseMPAEnhanced(private); !ok {
			return p, frameError("the peer's frame announces read depths, but has only %d octets of private data", len(private))
		}
	}
	return p, nil
}

// build returns a frame. block is nil if the frame has no Enhanced block.
func build(h wire.MPAFields, block *wire.MPAEnhancedFields, private []byte) ([]byte, error) {
	if err := fits(len(private), block != nil, 0); err != nil {
		return nil, err
	}
	if block != nil {
		h.Flags |= wire.MPAEnhanced
		h.PrivateLen = wire.MPAEnhancedLen
	}
	h.PrivateLen += uint16(len(private))
	b := h.Append(make([]byte, 0, wire.MPAFrameLen+int(h.PrivateLen)))
	if block != nil {
		b = block.Append(b)
	}
	return append(b, private...), nil
}

// fits returns an error if a frame has no room for n octets of private data and for a
// trailer of x. enhanced says that the frame has an Enhanced block.
func fits(n int, enhanced bool, x wire.Extensions) error {
	room, beside := wire.MPAMaxPrivate, ""
	if enhanced {
		room -= wire.MPAEnhancedLen
	}
	if x != 0 {
		room, beside = room-wire.MPATrailerLen, " beside the trailer of the Extensions"
	}
	if n > room {
		return fmt.Errorf("MPA: %d octets of private data; there is room for %d%s", n, room, beside)
	}
	return nil
}

// trailed returns private data with the trailer for x behind it. If x is empty, trailed
// returns private as it is.
func trailed(private []byte, reply bool, x wire.Extensions) []byte {
	if x == 0 {
		return private
	}
	return wire.MPATrailer{Reply: reply, Extensions: x}.Append(bytes.Clone(private))
}

func flag(f wire.MPAFlags, set bool) wire.MPAFlags {
	if set {
		return f
	}
	return 0
}
