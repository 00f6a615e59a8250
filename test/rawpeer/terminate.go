package rawpeer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Terminate is a Terminate's payload (RFC 5040 §4.8).
type Terminate struct {
	Layer, Type, Code uint8
	SegmentLen        uint16
	Header            []byte // DDP header of the refused segment, as it was sent
	Request           []byte // Read Request header of the refused segment, as it was sent
}

// These are the flags in the third octet of a Terminate.
const (
	termM = 0x80 // the segment's length is valid
	termD = 0x40 // the DDP header is included
	termR = 0x20 // the Read Request header is included
)

// String returns layer, type and code as RFCs write them.
func (t Terminate) String() string { return fmt.Sprintf("%x/%x/%02x", t.Layer, t.Type, t.Code) }

// terminateHeader is the untagged header of every Terminate: last segment, opcode 7, no
// STag to invalidate, queue 2, MSN 1, offset 0.
var terminateHeader = []byte{0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0}

// IsTerminate reports whether a ULPDU has a Terminate's opcode.
func IsTerminate(ulpdu []byte) bool {
	return len(ulpdu) > AtRDMAP && ulpdu[AtDDP]&0x80 == 0 && ulpdu[AtRDMAP]&0x0f == 7
}

// ParseTerminate parses a ULPDU that must be a Terminate. It returns an error if the
// header, the flags or the length are wrong.
func ParseTerminate(ulpdu []byte) (t Terminate, err error) {
	if len(ulpdu) < len(terminateHeader)+4 || string(ulpdu[:len(terminateHeader)]) != string(terminateHeader) {
		return t, fmt.Errorf("not a Terminate in good order: %x", ulpdu)
	}
	b := ulpdu[len(terminateHeader):]
	t = Terminate{Layer: b[0] >> 4, Type: b[0] & 0xf, Code: b[1]}
	flags := b[2]
	if flags&^(termM|termD|termR) != 0 || b[3] != 0 {
		return t, fmt.Errorf("a Terminate with reserved bits: %x", b)
	}
	b = b[4:]
	switch {
	case flags&(termM|termD) == 0:
	case flags&(termM|termD) != termM|termD:
		return t, fmt.Errorf("a Terminate whose length and header do not come together: %x", ulpdu)
	default:
		if b, err = t.segment(b); err != nil {
			return t, err
		}
	}
	if flags&termR != 0 {
		const n = 28
		if len(b) < n {
			return t, errors.New("a Terminate without the Read Request that it announces")
		}
		t.Request, b = b[:n], b[n:]
	}
	if len(b) != 0 {
		return t, fmt.Errorf("a Terminate with %d octets that nothing announces", len(b))
	}
	return t, nil
}

// segment parses the length and the header of the refused segment.
func (t *Terminate) segment(b []byte) (rest []byte, err error) {
	if len(b) < 3 {
		return nil, errors.New("a Terminate that ends before the header that it announces")
	}
	t.SegmentLen = binary.BigEndian.Uint16(b)
	b = b[2:]
	n := 18
	if b[0]&0x80 != 0 {
		n = 14
	}
	if len(b) < n {
		return nil, errors.New("a Terminate that ends within the header that it announces")
	}
	t.Header = b[:n]
	return b[n:], nil
}
