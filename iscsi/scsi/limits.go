package scsi

import "encoding/binary"

// Limits is page B0h, the block limits (SBC-3 §6.6.4). All lengths are in logical blocks.
// 0 means that the unit reports no limit, except where the comment says otherwise.
type Limits struct {
	MaxTransfer        uint32 // longest READ, WRITE, VERIFY
	OptimalTransfer    uint32
	OptimalGranularity uint16
	MaxPreFetch        uint32
	MaxCompareAndWrite uint8  // 0: no COMPARE AND WRITE
	MaxUnmap           uint32 // blocks of one UNMAP; 0: no UNMAP
	MaxUnmapExtents    uint32 // descriptors of one UNMAP; 0: no UNMAP
	UnmapGranularity   uint32
	UnmapAlignment     uint32
	HasUnmapAlignment  bool // UGAVALID
	MaxWriteSame       uint64
	NoZeroWriteSame    bool   // WSNZ: WRITE SAME of 0 blocks is refused
	MaxAtomic          uint32 // 0: no WRITE ATOMIC
	AtomicAlignment    uint32
	AtomicGranularity  uint32
}

// limitsLen is the length of page B0h without its header in SBC-4. Older units have 12 or
// 60 octets.
const limitsLen = 60

// ParseLimits reads page B0h. Fields behind the end of the page are 0.
func ParseLimits(b []byte) (l Limits, err error) {
	body, err := VPD(PageLimits, b)
	if err != nil {
		return Limits{}, err
	}
	var p [limitsLen]byte
	copy(p[:], body)
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(p[at-vpdHeadLen:]) }
	const alignmentValid = 1 << 31
	l = Limits{
		NoZeroWriteSame: p[0]&0x01 != 0, MaxCompareAndWrite: p[1], OptimalGranularity: binary.BigEndian.Uint16(p[2:]),
		MaxTransfer: u32(8), OptimalTransfer: u32(12), MaxPreFetch: u32(16), MaxUnmap: u32(20), MaxUnmapExtents: u32(24), UnmapGranularity: u32(28),
		MaxWriteSame: binary.BigEndian.Uint64(p[36-vpdHeadLen:]), MaxAtomic: u32(44), AtomicAlignment: u32(48), AtomicGranularity: u32(52),
	}
	if v := u32(32); v&alignmentValid != 0 {
		l.HasUnmapAlignment, l.UnmapAlignment = true, v&^alignmentValid
	}
	return l, nil
}

// Characteristics is page B1h (SBC-3 §6.6.2).
type Characteristics struct {
	RotationRate uint16 // 0: not reported; 1: the medium does not rotate; else rotations in a minute
	FormFactor   uint8  // nominal form factor
	FUASync      bool   // FUAB: SYNCHRONIZE CACHE and FUA concern volatile caches only
}

// ParseCharacteristics reads page B1h.
func ParseCharacteristics(b []byte) (c Characteristics, err error) {
	body, err := VPD(PageCharacteristics, b)
	if err != nil {
		return Characteristics{}, err
	}
	if len(body) < 5 {
		return Characteristics{}, short("VPD page B1h", len(body), 5)
	}
	return Characteristics{RotationRate: binary.BigEndian.Uint16(body), FormFactor: body[3] & 0x0f, FUASync: body[4]&0x02 != 0}, nil
}

// Provisioning is page B2h, logical block provisioning (SBC-3 §6.6.5).
type Provisioning struct {
	Unmap       bool  // LBPU: the unit has UNMAP
	WriteSame16 bool  // LBPWS: WRITE SAME(16) may unmap
	WriteSame10 bool  // LBPWS10: WRITE SAME(10) may unmap
	ReadsZero   bool  // LBPRZ: unmapped blocks read as zero
	Anchors     bool  // ANC_SUP
	Type        uint8 // 0: not reported or fully provisioned; 1: resource provisioned; 2: thin
	Threshold   uint8 // threshold exponent
}

// ParseProvisioning reads page B2h.
func ParseProvisioning(b []byte) (p Provisioning, err error) {
	body, err := VPD(PageProvisioning, b)
	if err != nil {
		return Provisioning{}, err
	}
	if len(body) < 3 {
		return Provisioning{}, short("VPD page B2h", len(body), 3)
	}
	return Provisioning{
		Threshold: body[0], Unmap: body[1]&0x80 != 0, WriteSame16: body[1]&0x40 != 0, WriteSame10: body[1]&0x20 != 0,
		ReadsZero: body[1]&0x04 != 0, Anchors: body[1]&0x02 != 0, Type: body[2] & 0x07,
	}, nil
}
