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
	// Receivers take what the length field can say.
	MaxULPDU = 64768

	// MaxFPDULen is how long an FPDU can be, Markers left out.
	MaxFPDULen = 65544
)

// FPDULen is how long the FPDU of a ULPDU of n octets is, Markers left out.
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

// PutMarker writes a Marker to the first 4 octets of b. back is how many octets
// before it its FPDU began, 0 when the FPDU begins right behind it. 16 bits of
// back travel.
func PutMarker(b []byte, back int) {
	binary.BigEndian.PutUint16(b, 0)
	binary.BigEndian.PutUint16(b[markerPointer:], uint16(back))
}

// MarkerPointer reads what PutMarker wrote. The lowest two bits, which
// no FPDU can need, are taken for 0.
func MarkerPointer(b []byte) uint16 {
	return binary.BigEndian.Uint16(b[markerPointer:]) &^ (fpduAlign - 1)
}
