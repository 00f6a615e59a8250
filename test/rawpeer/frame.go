package rawpeer

import (
	"encoding/binary"
	"fmt"
)

// These are the keys of MPA Requests and Replies (RFC 5044 §7.1.1).
const (
	RequestKey = "MPA ID Req Frame"
	ReplyKey   = "MPA ID Rep Frame"
)

// These are the flags of a frame, and of the two words of the Enhanced block (RFC 5044
// §7.1.1, RFC 6581 §9).
const (
	Markers  = 0x80
	CRC      = 0x40
	Reject   = 0x20
	Enhanced = 0x10

	PeerToPeer = 0x8000 // flag in the word with IRD
	RTRSend    = 0x4000 // flag in the word with IRD
	RTRWrite   = 0x8000 // flag in the word with ORD
	RTRRead    = 0x4000 // flag in the word with ORD
)

// Frame is an MPA Request or Reply. It may be malformed.
type Frame struct {
	Key      string
	Flags    uint8
	Revision uint8
	Claim    int // contents of the length field
	Private  []byte
}

// frameLen is the length of a frame without private data, in octets.
const frameLen = 20

// Request returns a correct Request: revision 2 with an Enhanced block, or an older
// revision without one.
func Request(flags, revision uint8, private ...byte) Frame {
	return Frame{Key: RequestKey, Flags: flags, Revision: revision, Claim: len(private), Private: private}
}

// Reply returns a correct Reply. The arguments are the same as for Request.
func Reply(flags, revision uint8, private ...byte) Frame {
	f := Request(flags, revision, private...)
	f.Key = ReplyKey
	return f
}

// Block returns an Enhanced block, the first 4 octets of private data.
func Block(ird, ord uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, ird), ord)
}

// Bytes returns the octets of the frame.
func (f Frame) Bytes() []byte {
	b := append([]byte(f.Key), f.Flags, f.Revision)
	b = binary.BigEndian.AppendUint16(b, uint16(f.Claim))
	return append(b, f.Private...)
}

// Depths returns the two words of the Enhanced block, including flags.
func (f Frame) Depths() (ird, ord uint16) {
	if len(f.Private) < 4 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(f.Private), binary.BigEndian.Uint16(f.Private[2:])
}

func (f Frame) String() string {
	return fmt.Sprintf("%q flags %02x revision %d private %x", f.Key, f.Flags, f.Revision, f.Private)
}
