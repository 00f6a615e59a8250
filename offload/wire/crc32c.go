package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// CRCLen is the length of a CRC32C on the wire.
const CRCLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the Castagnoli CRC of b, as MPA (RFC 5044 §4.4) and iSCSI's digests
// (RFC 7143 §13.1) use it.
func CRC32C(b []byte) uint32 { return UpdateCRC32C(0, b) }

// UpdateCRC32C appends b to octets whose CRC is crc and returns the new CRC. The CRC
// of no octets is 0.
func UpdateCRC32C(crc uint32, b []byte) uint32 {
	if canFold {
		return ^fold(^crc, b)
	}
	return crc32.Update(crc, castagnoli, b)
}

// CopyCRC32C copies src to the start of dst, and returns the CRC of src appended to octets
// whose CRC is crc. The two may not overlap. The CRC is that of the copy, also if src changes
// meanwhile.
func CopyCRC32C(crc uint32, dst, src []byte) uint32 {
	dst = dst[:len(src)]
	if canFold && len(src) >= foldLeast {
		if state, ok := foldCopy(^crc, dst, src); ok {
			return ^state
		}
	}
	copy(dst, src)
	return UpdateCRC32C(crc, dst)
}

// PutCRC32C writes crc to the first 4 octets of b, lowest octet first. All other fields
// of MPA and iSCSI are in network order.
func PutCRC32C(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// ReadCRC32C reads a CRC that PutCRC32C wrote.
func ReadCRC32C(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
