package pdu

import (
	"encoding/binary"
	"errors"
)

// An additional header segment (RFC 7143 §11.2.2, Figure 16). AHSLength counts from octet
// 3 on and does not include the pad up to a multiple of 4:
//
//	0           2         3          4
//	| AHSLength | AHSType | specific | data | pad |
const (
	atAHSType     = 2
	atAHSSpecific = 3
	ahsHeadLen    = 4

	bidiReadLen = 4
)

// AHSType is the type of an additional header segment.
type AHSType uint8

const (
	AHSExtendedCDB AHSType = 1 // the octets of a CDB behind the first 16 (RFC 7143 §11.2.2.3)
	AHSBidiRead    AHSType = 2 // Bidirectional Read Expected Data Transfer Length (RFC 7143 §11.2.2.4)
)

// ErrAHS is the error for additional header segments that do not fill their octets.
var ErrAHS = errors.New("iscsi: an additional header segment is longer than TotalAHSLength, or has no octet")

// AHS iterates over the additional header segments of a PDU.
//
//	for a := pdu.NewAHS(octets); a.Next(); {
//		use(a.Type, a.Data)
//	}
type AHS struct {
	Type     AHSType
	Specific uint8  // octet 3 of the segment
	Data     []byte // octets 4 up to the pad; they alias the octets of the iterator
	rest     []byte
	err      error
}

// NewAHS returns an iterator over the octets between the header and the header digest.
func NewAHS(octets []byte) AHS { return AHS{rest: octets} }

// Next moves to the next segment. It returns false after the last segment or at an
// error.
func (a *AHS) Next() bool {
	if len(a.rest) == 0 || a.err != nil {
		return false
	}
	if len(a.rest) < ahsHeadLen {
		a.err = ErrAHS
		return false
	}
	n := int(binary.BigEndian.Uint16(a.rest))
	end := atAHSSpecific + n
	if n == 0 || Padded(end) > len(a.rest) {
		a.err = ErrAHS
		return false
	}
	a.Type, a.Specific, a.Data = AHSType(a.rest[atAHSType]&opcodeMask), a.rest[atAHSSpecific], a.rest[ahsHeadLen:end:end]
	a.rest = a.rest[Padded(end):]
	return true
}

// Err returns the error that ended the iteration, or nil.
func (a *AHS) Err() error { return a.err }

// ReadLength returns the read length of a segment of type AHSBidiRead in octets. ok is
// false for another type and for another length of the segment.
func (a *AHS) ReadLength() (n uint32, ok bool) {
	if a.Type != AHSBidiRead || len(a.Data) != bidiReadLen {
		return 0, false
	}
	return binary.BigEndian.Uint32(a.Data), true
}

// AppendExtendedCDB appends the segment with the octets of cdb behind the first 16. It
// appends nothing for a CDB of at most 16 octets.
func AppendExtendedCDB(b, cdb []byte) []byte {
	if len(cdb) <= CDBLen {
		return b
	}
	return appendAHS(b, AHSExtendedCDB, cdb[CDBLen:])
}

// AppendBidiReadLength appends the segment with the read length of a bidirectional
// command in octets.
func AppendBidiReadLength(b []byte, n uint32) []byte {
	var data [bidiReadLen]byte
	binary.BigEndian.PutUint32(data[:], n)
	return appendAHS(b, AHSBidiRead, data[:])
}

func appendAHS(b []byte, t AHSType, data []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(1+len(data)))
	b = append(b, uint8(t), 0)
	b = append(b, data...)
	return append(b, zeros[:Pad(len(data))]...)
}
