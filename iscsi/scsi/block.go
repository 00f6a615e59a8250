package scsi

// Flags of a command that transfers blocks: octet 1 of its CDB (SBC-3 §5.11).
const (
	DPO = 0x10 // disable page out: the blocks need not stay in a cache
	FUA = 0x08 // force unit access: past a volatile cache
)

// most10 is the greatest LBA, and blocks10 the greatest number of blocks, of a CDB of 10
// octets.
const (
	most10   = 1<<32 - 1
	blocks10 = 1<<16 - 1
)

// Read returns READ(10) (SBC-3 §5.11) if the extent fits, else READ(16) (§5.13). flags are
// DPO and FUA.
func Read(lba uint64, blocks uint32, flags uint8) CDB {
	return transferOf(0x28, 0x88, lba, blocks, flags)
}

// Write returns WRITE(10) (SBC-3 §5.33) if the extent fits, else WRITE(16) (§5.35). flags
// are DPO and FUA.
func Write(lba uint64, blocks uint32, flags uint8) CDB {
	return transferOf(0x2a, 0x8a, lba, blocks, flags)
}

// The values of BYTCHK (SBC-3 §5.28), at their place in octet 1.
const (
	VerifyMedium = 0 << 1 // VERIFY has no data
	VerifyAll    = 1 << 1 // the data are compared with the blocks
	VerifyOne    = 3 << 1 // one block of data is compared with each block
)

// Verify returns VERIFY(10) or VERIFY(16) (SBC-3 §5.28, §5.30). bytchk is VerifyMedium,
// VerifyAll or VerifyOne.
func Verify(lba uint64, blocks uint32, bytchk uint8) CDB {
	return transferOf(0x2f, 0x8f, lba, blocks, bytchk)
}

// WriteAndVerify returns WRITE AND VERIFY(10) or (16) (SBC-3 §5.38, §5.40). flags are DPO
// and VerifyAll.
func WriteAndVerify(lba uint64, blocks uint32, flags uint8) CDB {
	return transferOf(0x2e, 0x8e, lba, blocks, flags)
}

// SynchronizeCache returns SYNCHRONIZE CACHE(10) or (16) (SBC-3 §5.23, §5.24). 0 blocks are
// all up to the end of the unit.
func SynchronizeCache(lba uint64, blocks uint32) CDB { return transferOf(0x35, 0x91, lba, blocks, 0) }

// PreFetch returns PRE-FETCH(10) or (16) (SBC-3 §5.8, §5.9). Its status is CONDITION MET if
// the cache has room for the blocks.
func PreFetch(lba uint64, blocks uint32) CDB { return transferOf(0x34, 0x90, lba, blocks, 0) }

// The flags of WRITE SAME (SBC-3 §5.42, §5.43).
const (
	SameUnmap  = 0x08 // UNMAP: the target may unmap the blocks if they then read the same
	SameAnchor = 0x10 // ANCHOR
	SameNoData = 0x01 // NDOB: no data, the blocks become zero; only in WRITE SAME(16)
)

// WriteSame returns WRITE SAME(10) if the extent fits and flags lack SameNoData, else
// WRITE SAME(16) (SBC-3 §5.42, §5.43).
func WriteSame(lba uint64, blocks uint32, flags uint8) CDB {
	if flags&SameNoData != 0 {
		return transfer16(0x93, lba, blocks, flags)
	}
	return transferOf(0x41, 0x93, lba, blocks, flags)
}

// CompareAndWrite returns COMPARE AND WRITE (SBC-3 §5.2). The data are the blocks to
// compare and then the blocks to write.
func CompareAndWrite(lba uint64, blocks, flags uint8) CDB {
	return transfer16(0x89, lba, uint32(blocks), flags)
}

// ORWrite returns ORWRITE(16) (SBC-3 §5.6). flags are DPO and FUA.
func ORWrite(lba uint64, blocks uint32, flags uint8) CDB { return transfer16(0x8b, lba, blocks, flags) }

// WriteAtomic returns WRITE ATOMIC(16) (SBC-4 §5.48) without a boundary. flags are DPO and
// FUA.
func WriteAtomic(lba uint64, blocks uint16, flags uint8) (c CDB) {
	c[0], c[1] = 0x9c, flags
	c.put64(2, lba)
	c.put16(12, blocks)
	return c
}

// Unmap returns UNMAP (SBC-3 §5.25). length is that of the parameter list in octets.
func Unmap(length uint16) (c CDB) {
	c[0] = 0x42
	c.put16(7, length)
	return c
}

// GetLBAStatus returns GET LBA STATUS (SBC-3 §5.4). most is the allocation length.
func GetLBAStatus(lba uint64, most uint32) (c CDB) {
	c[0], c[1] = 0x9e, 0x12
	c.put64(2, lba)
	c.put32(10, most)
	return c
}

// ReadCapacity10 returns READ CAPACITY(10) (SBC-3 §5.15).
func ReadCapacity10() CDB { return CDB{0x25} }

// ReadCapacity16 returns READ CAPACITY(16) (SBC-3 §5.16).
func ReadCapacity16() (c CDB) {
	c[0], c[1] = 0x9e, 0x10
	c.put32(10, Capacity16Len)
	return c
}

// StartStop returns START STOP UNIT (SBC-3 §5.22) that waits until it is done.
func StartStop(start, loadEject bool) (c CDB) {
	c[0] = 0x1b
	if start {
		c[4] |= 0x01
	}
	if loadEject {
		c[4] |= 0x02
	}
	return c
}

func transferOf(op10, op16 uint8, lba uint64, blocks uint32, flags uint8) (c CDB) {
	if lba > most10 || blocks > blocks10 {
		return transfer16(op16, lba, blocks, flags)
	}
	c[0], c[1] = op10, flags
	c.put32(2, uint32(lba))
	c.put16(7, uint16(blocks))
	return c
}

func transfer16(op uint8, lba uint64, blocks uint32, flags uint8) (c CDB) {
	c[0], c[1] = op, flags
	c.put64(2, lba)
	c.put32(10, blocks)
	return c
}
