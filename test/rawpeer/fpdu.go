package rawpeer

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FPDU returns an FPDU with a correct CRC that contains ulpdu (RFC 5044 §4.1).
func FPDU(ulpdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// FPDUs returns the FPDUs of several ULPDUs, one after the other.
func FPDUs(ulpdus ...[]byte) (b []byte) {
	for _, u := range ulpdus {
		b = append(b, FPDU(u)...)
	}
	return b
}

// These are offsets in a ULPDU of octets that tests change.
const (
	AtDDP   = 0 // T, L, reserved bits, DDP version
	AtRDMAP = 1 // RDMAP version, reserved bits, opcode
	AtQueue = 6 // queue number of an untagged ULPDU, four octets
)

// Spoiled returns a copy of a ULPDU with one octet replaced.
func Spoiled(ulpdu []byte, at int, with byte) []byte {
	b := append([]byte(nil), ulpdu...)
	b[at] = with
	return b
}

// Write returns an RDMA Write of one segment.
func Write(stag uint32, to uint64, payload []byte) []byte {
	return TaggedSegment(wire.OpWrite, true, stag, to, payload)
}

// ReadResponse returns an RDMA Read Response of one segment.
func ReadResponse(stag uint32, to uint64, payload []byte) []byte {
	return TaggedSegment(wire.OpReadResponse, true, stag, to, payload)
}

// TaggedSegment returns a tagged ULPDU.
func TaggedSegment(op wire.Opcode, last bool, stag uint32, to uint64, payload []byte) []byte {
	b := wire.TaggedFields{Last: last, Opcode: op, STag: tpt.STag(stag), TO: to}.Append(nil)
	return append(b, payload...)
}

// Untagged holds the fields of an untagged header.
type Untagged struct {
	Op         wire.Opcode
	More       bool // true if this is not the last segment of its message
	Invalidate uint32
	Queue      uint32
	MSN, MO    uint32
}

// With returns the ULPDU with this payload.
func (u Untagged) With(payload []byte) []byte {
	b := wire.UntaggedFields{
		Last: !u.More, Opcode: u.Op, Invalidate: tpt.STag(u.Invalidate), Queue: u.Queue, MSN: u.MSN, MO: u.MO,
	}.Append(nil)
	return append(b, payload...)
}

// Send returns a Send of one segment.
func Send(msn uint32, payload []byte) []byte {
	return Untagged{Op: wire.OpSend, MSN: msn}.With(payload)
}

// SendInvalidate returns a Send with Invalidate of one segment.
func SendInvalidate(msn, stag uint32, payload []byte) []byte {
	return Untagged{Op: wire.OpSendInvalidate, MSN: msn, Invalidate: stag}.With(payload)
}

// Read holds the fields of an RDMA Read Request.
type Read = wire.ReadRequestFields

// ReadRequest returns an RDMA Read Request.
func ReadRequest(msn uint32, r Read) []byte {
	return Untagged{Op: wire.OpReadRequest, Queue: wire.QueueReadRequest, MSN: msn}.With(r.Append(nil))
}
