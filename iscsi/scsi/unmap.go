package scsi

import "encoding/binary"

// Extent is a run of logical blocks.
type Extent struct {
	LBA    uint64
	Blocks uint32
}

const (
	unmapHeadLen   = 8
	unmapExtentLen = 16

	// MaxUnmapExtents is the greatest number of extents of one parameter list.
	MaxUnmapExtents = (1<<16 - 1 - unmapHeadLen) / unmapExtentLen
)

// UnmapLen returns the length of the UNMAP parameter list of n extents in octets.
func UnmapLen(n int) int { return unmapHeadLen + unmapExtentLen*n }

// AppendUnmap appends the parameter list of UNMAP (SBC-3 §5.25.2), UnmapLen octets. There
// must be at most MaxUnmapExtents extents.
func AppendUnmap(b []byte, extents []Extent) []byte {
	n := UnmapLen(len(extents))
	b = binary.BigEndian.AppendUint16(b, uint16(n-2))
	b = binary.BigEndian.AppendUint16(b, uint16(n-unmapHeadLen))
	b = append(b, 0, 0, 0, 0)
	for _, e := range extents {
		b = binary.BigEndian.AppendUint64(b, e.LBA)
		b = binary.BigEndian.AppendUint32(b, e.Blocks)
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

// ParseUnmap reads the parameter list of UNMAP. Descriptors that are cut off are left out
// (SBC-3 §5.25.2).
func ParseUnmap(b []byte) (extents []Extent, err error) {
	if len(b) < unmapHeadLen {
		return nil, short("UNMAP parameter list", len(b), unmapHeadLen)
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	b = b[unmapHeadLen:]
	for b = b[:min(n, len(b))]; len(b) >= unmapExtentLen; b = b[unmapExtentLen:] {
		extents = append(extents, Extent{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])})
	}
	return extents, nil
}
