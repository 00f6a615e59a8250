package rawpeer

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FPDU puts a ULPDU into an FPDU with a good CRC (RFC 5044 §4.1).
func FPDU(ulpdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// FPDUs is several of them, one behind the other.
func FPDUs(ulpdus ...[]byte) (b []byte) {
	for _, u := range ulpdus {
		b = append(b, FPDU(u)...)
	}
	return b
}

// Octets of a ULPDU that tests spoil.
const (
	AtDDP   = 0 // T, L, reserved bits, DDP version
	AtRDMAP = 1 // RDMAP version, reserved bits, opcode
	AtQueue = 6 // untagged, four octets
)

// Spoiled is a copy of a ULPDU with one octet replaced.
func Spoiled(ulpdu []byte, at int, with byte) []byte {
	b := append([]byte(nil), ulpdu...)
	b[at] = with
	return b
}

// Write is a one-segment RDMA Write.
func Write(stag uint32, to uint64, payload []byte) []byte {
	return TaggedSegment(wire.OpWrite, true, stag, to, payload)
}

// ReadResponse is a one-segment RDMA Read Response.
func ReadResponse(stag uint32, to uint64, payload []byte) []byte {
	return TaggedSegment(wire.OpReadResponse, true, stag, to, payload)
}

// TaggedSegment is a tagged ULPDU.
func TaggedSegment(op wire.Opcode, last bool, stag uint32, to uint64, payload []byte) []byte {
	b := wire.TaggedFields{Last: last, Opcode: op, STag: tpt.STag(stag), TO: to}.Append(nil)
	return append(b, payload...)
}

// Untagged is the header of an untagged ULPDU, by value.
type Untagged struct {
	Op         wire.Opcode
	More       bool // not the last segment
	Invalidate uint32
	Queue      uint32
	MSN, MO    uint32
}

// With is the ULPDU with this payload.
func (u Untagged) With(payload []byte) []byte {
	b := wire.UntaggedFields{
		Last: !u.More, Opcode: u.Op, Invalidate: tpt.STag(u.Invalidate), Queue: u.Queue, MSN: u.MSN, MO: u.MO,
	}.Append(nil)
	return append(b, payload...)
}

// Send is a one-segment Send.
func Send(msn uint32, payload []byte) []byte {
	return Untagged{Op: wire.OpSend, MSN: msn}.With(payload)
}

// SendInvalidate is a one-segment Send with Invalidate.
func SendInvalidate(msn, stag uint32, payload []byte) []byte {
	return Untagged{Op: wire.OpSendInvalidate, MSN: msn, Invalidate: stag}.With(payload)
}

// Read is what an RDMA Read Request asks for.
type Read = wire.ReadRequestFields

// ReadRequest is an RDMA Read Request.
func ReadRequest(msn uint32, r Read) []byte {
	return Untagged{Op: wire.OpReadRequest, Queue: wire.QueueReadRequest, MSN: msn}.With(r.Append(nil))
}
