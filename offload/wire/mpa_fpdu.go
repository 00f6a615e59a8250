package wire

import "encoding/binary"

// An FPDU, Markers left out (RFC 5044 §4.1). The padding makes it a multiple of
// 4 octets; the CRC covers all before it:
//
//	0        2       2+n   ...
//	| length | ULPDU | pad | CRC |
const (
	FPDUHeadLen = 2 // ULPDU_Length
	fpduAlign   = 4

	// MaxULPDU is the longest ULPDU that a sender may make (RFC 5044 §4.1).
	// Receivers accept any value of the length field.
	MaxULPDU = 64768

	// MaxFPDULen is the length of the longest FPDU in octets, Markers left out.
	MaxFPDULen = 65544
)

// FPDULen returns the length of the FPDU of a ULPDU of n octets, Markers left out.
func FPDULen(n int) int {
	return (FPDUHeadLen+n+fpduAlign-1)/fpduAlign*fpduAlign + CRCLen
}

// A Marker stands every 512 octets in a stream that has Markers, itself
// counted, from the first octet of full operation on (RFC 5044 §4.2):
//
//	0          2                4
//	| reserved | octets back to the FPDU's length field |
const (
	markerPointer = 2
	MarkerLen     = 4
	MarkerSpacing = 512
)

// PutMarker writes a Marker to the first 4 octets of b. back is the distance in octets
// from the start of the FPDU to the Marker, or 0 if the FPDU begins directly behind the
// Marker. PutMarker writes the low 16 bits of back.
func PutMarker(b []byte, back int) {
	binary.BigEndian.PutUint16(b, 0)
	binary.BigEndian.PutUint16(b[markerPointer:], uint16(back))
}

// MarkerPointer returns the distance in a Marker. It takes the lowest two bits as 0,
// because FPDUs are multiples of 4 octets.
func MarkerPointer(b []byte) uint16 {
	return binary.BigEndian.Uint16(b[markerPointer:]) &^ (fpduAlign - 1)
}
