package pdu

import "github.com/stag-rdma/stag/offload/wire"

// DigestLen is the length of a header digest or data digest in octets. A digest is a
// CRC32C, lowest octet first (RFC 7143 §13.1). PutDigest and ReadDigest write and read
// one.
const DigestLen = wire.CRCLen

// Pad returns the number of octets, 0 to 3, that follow n octets up to a multiple of 4.
func Pad(n int) int { return -n & 3 }

// Padded returns n, rounded up to a multiple of 4.
func Padded(n int) int { return (n + 3) &^ 3 }

// zeros are the octets of a pad as this package sends them.
var zeros [3]byte

// HeaderDigest returns the digest over a header and its additional header segments.
func HeaderDigest(h *Header, ahs []byte) uint32 {
	return wire.UpdateCRC32C(wire.CRC32C(h[:]), ahs)
}

// DataDigest returns the digest over a data segment and over the pad of zeros that
// follows it.
func DataDigest(data []byte) uint32 { return DigestPad(wire.CRC32C(data), len(data)) }

// UpdateDigest continues the digest crc over b. The digest of no octets is 0. A receiver
// digests the octets of a pad as they arrive: a sender may put other octets than zeros
// there.
func UpdateDigest(crc uint32, b []byte) uint32 { return wire.UpdateCRC32C(crc, b) }

// DigestPad continues the digest crc over the pad of zeros that follows n octets.
func DigestPad(crc uint32, n int) uint32 { return wire.UpdateCRC32C(crc, zeros[:Pad(n)]) }

// PutDigest writes a digest to the first 4 octets of b.
func PutDigest(b []byte, digest uint32) { wire.PutCRC32C(b, digest) }

// ReadDigest reads a digest from the first 4 octets of b.
func ReadDigest(b []byte) uint32 { return wire.ReadCRC32C(b) }

// Digests says which digests the PDUs of a connection have (keys HeaderDigest and
// DataDigest). No PDU of the login has any.
type Digests struct {
	Header, Data bool
}

// HeaderLen returns the length of a PDU up to its data segment in octets: the header, the
// additional header segments and the header digest.
func (d Digests) HeaderLen(h *Header) int {
	n := HeaderLen + h.AHSLength()
	if d.Header {
		n += DigestLen
	}
	return n
}

// TailLen returns the length of the pad and of the data digest behind a data segment of
// n octets. No digest follows a data segment of length 0 (RFC 7143 §11.2.3).
func (d Digests) TailLen(n int) int {
	if d.Data && n != 0 {
		return Pad(n) + DigestLen
	}
	return Pad(n)
}

// Len returns the length of a whole PDU in octets.
func (d Digests) Len(h *Header) int {
	n := h.DataLength()
	return d.HeaderLen(h) + n + d.TailLen(n)
}
