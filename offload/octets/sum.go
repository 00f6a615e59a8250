package octets

import "hash/crc32"

// Sum is a running 64-bit checksum of a stream. The upper half is CRC-32C, and the
// lower half is CRC-32 (IEEE 802.3). Processors have instructions for both, so that the
// checksum costs little compared with the copy. The zero Sum is the sum of no octets.
type Sum struct{ c, ieee uint32 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Add adds octets at the end of the stream.
func (s *Sum) Add(b []byte) {
	s.c = crc32.Update(s.c, castagnoli, b)
	s.ieee = crc32.Update(s.ieee, crc32.IEEETable, b)
}

// Value returns the checksum of all octets so far.
func (s *Sum) Value() uint64 { return uint64(s.c)<<32 | uint64(s.ieee) }

// sumOf returns the Sum with this value.
func sumOf(v uint64) Sum { return Sum{uint32(v >> 32), uint32(v)} }
