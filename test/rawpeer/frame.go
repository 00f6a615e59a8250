package rawpeer

import (
	"encoding/binary"
	"fmt"
)

// The keys of the two frames (RFC 5044 §7.1.1).
const (
	RequestKey = "MPA ID Req Frame"
	ReplyKey   = "MPA ID Rep Frame"
)

// Flags of a frame, and of the Enhanced block's two words (RFC 5044 §7.1.1,
// RFC 6581 §9).
const (
	Markers  = 0x80
	CRC      = 0x40
	Reject   = 0x20
	Enhanced = 0x10

	PeerToPeer = 0x8000 // beside IRD
	RTRSend    = 0x4000 // beside IRD
	RTRWrite   = 0x8000 // beside ORD
	RTRRead    = 0x4000 // beside ORD
)

// Frame is an MPA Request or Reply. Nothing about it has to be right.
type Frame struct {
	Key      string
	Flags    uint8
	Revision uint8
	Claim    int // what the length field says
	Private  []byte
}

// frameLen is a frame's length without private data.
const frameLen = 20

// Request is a frame in good order: revision 2 with an Enhanced block, or an
// older one without.
func Request(flags, revision uint8, private ...byte) Frame {
	return Frame{Key: RequestKey, Flags: flags, Revision: revision, Claim: len(private), Private: private}
}

// Reply is a Request's answer.
func Reply(flags, revision uint8, private ...byte) Frame {
	f := Request(flags, revision, private...)
	f.Key = ReplyKey
	return f
}

// Block is an Enhanced block, the first 4 octets of private data.
func Block(ird, ord uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, ird), ord)
}

// Bytes is the frame as it travels.
func (f Frame) Bytes() []byte {
	b := append([]byte(f.Key), f.Flags, f.Revision)
	b = binary.BigEndian.AppendUint16(b, uint16(f.Claim))
	return append(b, f.Private...)
}

// Depths are the two words of the Enhanced block, flags included.
func (f Frame) Depths() (ird, ord uint16) {
	if len(f.Private) < 4 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(f.Private), binary.BigEndian.Uint16(f.Private[2:])
}

func (f Frame) String() string {
	return fmt.Sprintf("%q flags %02x revision %d private %x", f.Key, f.Flags, f.Revision, f.Private)
}
