package wire

import "encoding/binary"

// An FPDU without Markers (RFC 5044 §4.1). The padding makes the length a multiple of
// 4 octets. The CRC covers all octets before it:
//
//	0        2       2+n   ...
//	| length | ULPDU | pad | CRC |
const (
	FPDUHeadLen = 2 // length of the field ULPDU_Length in octets
	fpduAlign   = 4

	// MaxULPDU is the longest ULPDU that a sender may make (RFC 5044 §4.1).
	// Receivers accept any value of the length field.
	MaxULPDU = 64768

	// MaxFPDULen is the length of the longest FPDU in octets, without Markers.
	MaxFPDULen = 65544
)

// FPDULen returns the length in octets of an FPDU with a ULPDU of n octets, without
// Markers.
func FPDULen(n int) int {
	return (FPDUHeadLen+n+fpduAlign-1)/fpduAlign*fpduAlign + CRCLen
}

// A Marker. In a stream with Markers, a Marker begins every 512 octets from the first
// octet of full operation on. The octets of Markers count as well (RFC 5044 §4.2):
//
//	0          2                4
//	| reserved | octets back to the FPDU's length field |
const (
	markerPointer = 2
	MarkerLen     = 4
	MarkerSpacing = 512
)

// PutMarker writes a Marker to the first 4 octets of b. back is the distance in octets
// from the start of the FPDU to the Marker. back is 0 if the FPDU begins directly
// behind the Marker. PutMarker writes the low 16 bits of back.
func PutMarker(b []byte, back int) {
	binary.BigEndian.PutUint16(b, 0)
	binary.BigEndian.PutUint16(b[markerPointer:], uint16(back))
}

// MarkerPointer returns the distance in a Marker. MarkerPointer takes the lowest two
// bits as 0, because the length of an FPDU is a multiple of 4 octets.
func MarkerPointer(b []byte) uint16 {
	return binary.BigEndian.Uint16(b[markerPointer:]) &^ (fpduAlign - 1)
}
