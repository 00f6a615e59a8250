package scsi

import (
	"encoding/binary"
	"errors"
	"math"
)

// Capacity is the size of a unit (SBC-3 §5.15, §5.16).
type Capacity struct {
	Blocks    uint64 // number of logical blocks
	BlockSize uint32 // octets of a logical block

	// READ CAPACITY(16) has these.
	PhysicalExponent uint8  // a physical block has 2^PhysicalExponent logical blocks
	LowestAligned    uint16 // first LBA at the beginning of a physical block
	Thin             bool   // LBPME: the unit has logical block provisioning
	ReadsZero        bool   // LBPRZ: unmapped blocks read as zero
	Protected        bool   // PROT_EN: the unit has protection information
}

const (
	capacity10Len = 8
	// Capacity16Len is the length of the data of READ CAPACITY(16) in octets.
	Capacity16Len = 32
)

// ErrTooBig is the error for a unit whose number of blocks READ CAPACITY(10) cannot tell.
var ErrTooBig = errors.New("scsi: the unit has 2^32 blocks or more: ask by READ CAPACITY(16)")

// ErrCapacity is the error for a capacity that cannot be.
var ErrCapacity = errors.New("scsi: READ CAPACITY reports blocks of 0 octets, or more than 2^63 octets")

// ParseCapacity10 reads the data of READ CAPACITY(10). The error is ErrTooBig if only READ
// CAPACITY(16) can tell.
func ParseCapacity10(b []byte) (Capacity, error) {
	if len(b) < capacity10Len {
		return Capacity{}, short("READ CAPACITY(10) data", len(b), capacity10Len)
	}
	last := binary.BigEndian.Uint32(b)
	if last == math.MaxUint32 {
		return Capacity{}, ErrTooBig
	}
	c := Capacity{Blocks: uint64(last) + 1, BlockSize: binary.BigEndian.Uint32(b[4:])}
	return c, c.check()
}

// ParseCapacity16 reads the data of READ CAPACITY(16).
func ParseCapacity16(b []byte) (Capacity, error) {
	const need = 12
	if len(b) < need {
		return Capacity{}, short("READ CAPACITY(16) data", len(b), need)
	}
	var p [Capacity16Len]byte
	copy(p[:], b)
	const thin, zero, aligned = 0x8000, 0x4000, 0x3fff
	flags := binary.BigEndian.Uint16(p[14:])
	c := Capacity{
		Blocks: binary.BigEndian.Uint64(p[:]) + 1, BlockSize: binary.BigEndian.Uint32(p[8:]),
		PhysicalExponent: p[13] & 0x0f, LowestAligned: flags & aligned, Thin: flags&thin != 0, ReadsZero: flags&zero != 0, Protected: p[12]&0x01 != 0,
	}
	return c, c.check()
}

// check refuses sizes that do not fit an int64. A number of 2^64 blocks is 0 here.
func (c Capacity) check() error {
	if c.BlockSize == 0 || c.Blocks == 0 || c.Blocks > math.MaxInt64/uint64(c.BlockSize) {
		return ErrCapacity
	}
	return nil
}

// Size returns the size of the unit in octets.
func (c Capacity) Size() int64 { return int64(c.Blocks) * int64(c.BlockSize) }

// ParseLUNs reads the data of REPORT LUNS (SPC-4 §6.33). missing is the number of units
// for which the allocation length had no room.
func ParseLUNs(b []byte) (luns []LUN, missing int, err error) {
	const head, size = 8, 8
	if len(b) < head {
		return nil, 0, short("REPORT LUNS data", len(b), head)
	}
	all := int(binary.BigEndian.Uint32(b) / size)
	for b = b[head:]; len(b) >= size && len(luns) < all; b = b[size:] {
		luns = append(luns, LUN(binary.BigEndian.Uint64(b)))
	}
	return luns, all - len(luns), nil
}

// BlockState is the provisioning status of blocks (SBC-3 §5.4.3).
type BlockState uint8

const (
	Mapped      BlockState = 0 // or the state is not known
	Deallocated BlockState = 1
	Anchored    BlockState = 2
)

// LBAStatus is the status of neighbouring blocks.
type LBAStatus struct {
	LBA    uint64
	Blocks uint32
	State  BlockState
}

// ParseLBAStatus reads the data of GET LBA STATUS (SBC-3 §5.4.3).
func ParseLBAStatus(b []byte) (all []LBAStatus, err error) {
	const head, size = 8, 16
	if len(b) < head {
		return nil, short("GET LBA STATUS data", len(b), head)
	}
	n := binary.BigEndian.Uint32(b)
	b = b[:min(uint64(len(b)), 4+uint64(n))]
	for at := head; at+size <= len(b); at += size {
		all = append(all, LBAStatus{binary.BigEndian.Uint64(b[at:]), binary.BigEndian.Uint32(b[at+8:]), BlockState(b[at+12] & 0x0f)})
	}
	return all, nil
}
