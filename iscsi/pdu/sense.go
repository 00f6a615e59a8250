package pdu

import "encoding/binary"

// senseHeadLen is the length of SenseLength in front of sense data.
const senseHeadLen = 2

// SplitSense splits the data segment of a SCSI Response, or of an Asynchronous Message
// (RFC 7143 §11.4.7, §11.9.4):
//
//	0             2       2+SenseLength
//	| SenseLength | sense | response data or event data |
//
// sense and rest alias data. ok is false if the sense data is longer than data. An empty
// data segment has no sense data.
func SplitSense(data []byte) (sense, rest []byte, ok bool) {
	if len(data) == 0 {
		return nil, nil, true
	}
	if len(data) < senseHeadLen {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(data))
	if data = data[senseHeadLen:]; n > len(data) {
		return nil, nil, false
	}
	return data[:n:n], data[n:], true
}

// AppendSense appends SenseLength and sense, which must be shorter than 64 KiB.
func AppendSense(b, sense []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(sense))), sense...)
}
