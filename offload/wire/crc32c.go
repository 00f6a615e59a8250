package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// CRCLen is the length of a CRC32C on the wire.
const CRCLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the Castagnoli CRC of b, as MPA (RFC 5044 §4.4) and iSCSI's digests
// (RFC 7143 §13.1) use it.
func CRC32C(b []byte) uint32 { return UpdateCRC32C(0, b) }

// UpdateCRC32C is the CRC of what crc is the CRC of, with b behind it. Nothing
// at all has the CRC 0.
func UpdateCRC32C(crc uint32, b []byte) uint32 {
	if n := len(b) &^ (foldUnit - 1); canFold && n >= foldLeast {
		crc = ^fold(^crc, b[:n])
		b = b[n:]
	}
	return crc32.Update(crc, castagnoli, b)
}

// What fold can do: whole units only, and at least so many octets.
const (
	foldUnit  = 64
	foldLeast = 256
)

// PutCRC32C writes crc to the first 4 octets of b, lowest octet first: the one
// field of these protocols that travels this way round.
func PutCRC32C(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// ReadCRC32C reads what PutCRC32C wrote.
func ReadCRC32C(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
