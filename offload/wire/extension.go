package wire

import "encoding/binary"

// Extensions is a set of protocol extensions that two ends of stag agree on. No RFC
// defines these bits.
type Extensions uint32

const (
	// ExtAlignedFPDUs: each TCP segment with data begins with an FPDU, unless every
	// octet before that segment has been acknowledged.
	ExtAlignedFPDUs Extensions = 1 << iota
	ExtRFC7306                 // Atomic Operations and Immediate Data of RFC 7306
	ExtPaging                  // messages about memory that must be fetched before it can be used
	ExtRails                   // a QP may use further connections
	ExtRailJoin                // this connection is a further connection of a QP
	ExtImmediate               // with ExtRFC7306: Immediate Data as InfiniBand has it
	ExtLongFPDUs               // an FPDU may be longer than a TCP segment
)

// Has reports whether all extensions of x are in e.
func (e Extensions) Has(x Extensions) bool { return e&x == x }

// An extension trailer is the last 8 octets of private data, behind the octets of the
// application. Only stag knows it. Every other peer takes it for private data.
//
//	0       3                  4                8
//	| "Stg" | version and role | set of Extensions |
//
// The version is in the high 4 bits, and the role of the sender is in the low 4 bits.
// The roles differ, so that the initiator does not take its own octets for an answer if
// the responder's application sends the private data of the Request back.
const (
	extRole       = 3
	extSet        = 4
	MPATrailerLen = 8

	extMagic     = "Stg"
	extVersion   = 1 << 4
	extInitiator = 0
	extResponder = 1
)

// MPATrailer holds the fields of an extension trailer.
type MPATrailer struct {
	Reply bool // the trailer is that of a Reply
	// Extensions is what the initiator offers, or the part of the offer that the
	// responder accepts.
	Extensions Extensions
}

// Append appends the trailer's 8 octets to b.
func (t MPATrailer) Append(b []byte) []byte {
	b = append(append(b, extMagic...), extVersion|role(t.Reply))
	return binary.BigEndian.AppendUint32(b, uint32(t.Extensions))
}

func role(reply bool) uint8 {
	if reply {
		return extResponder
	}
	return extInitiator
}

// CutMPATrailer splits private data of a Request or Reply into the octets of the
// application and the extension trailer. ok is false if the private data does not end
// in a trailer of that kind of frame and of the known version. All of b then belongs to
// the application.
func CutMPATrailer(b []byte, reply bool) (private []byte, t MPATrailer, ok bool) {
	at := len(b) - MPATrailerLen
	if at < 0 || string(b[at:at+extRole]) != extMagic || b[at+extRole] != extVersion|role(reply) {
		return b, MPATrailer{}, false
	}
	return b[:at], MPATrailer{Reply: reply, Extensions: Extensions(binary.BigEndian.Uint32(b[at+extSet:]))}, true
}
