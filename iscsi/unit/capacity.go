package unit

import "encoding/binary"

// planReadCapacity10 checks READ CAPACITY(10) (SBC-3 §5.15).
func planReadCapacity10(_ *Unit, t *Task) Sense {
	if t.CDB[8]&1 == 0 && binary.BigEndian.Uint32(t.CDB[2:]) != 0 {
		return badField(2)
	}
	t.in(8)
	return Sense{}
}

// readCapacity10 executes READ CAPACITY(10).
func (u *Unit) readCapacity10(t *Task) Sense {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], uint32(min(u.blocks-1, 0xffffffff)))
	binary.BigEndian.PutUint32(b[4:], uint32(u.conf.BlockSize))
	t.put(b[:])
	return Sense{}
}

// planReadCapacity16 checks READ CAPACITY(16) (SBC-3 §5.16).
func planReadCapacity16(_ *Unit, t *Task) Sense {
	if t.CDB[14]&1 == 0 && binary.BigEndian.Uint64(t.CDB[2:]) != 0 {
		return badField(2)
	}
	t.in(binary.BigEndian.Uint32(t.CDB[10:]))
	return Sense{}
}

// readCapacity16 executes READ CAPACITY(16).
func (u *Unit) readCapacity16(t *Task) Sense {
	b := make([]byte, 32)
	binary.BigEndian.PutUint64(b, u.blocks-1)
	binary.BigEndian.PutUint32(b[8:], uint32(u.conf.BlockSize))
	b[13] = u.conf.PhysicalExp
	if u.thin() {
		b[14] = 0xc0 // LBPME, LBPRZ
	}
	t.put(b)
	return Sense{}
}

// planLBAStatus checks GET LBA STATUS (SBC-3 §5.5).
func planLBAStatus(u *Unit, t *Task) Sense {
	n := binary.BigEndian.Uint32(t.CDB[10:])
	if n < 24 {
		return badField(10)
	}
	t.lba = binary.BigEndian.Uint64(t.CDB[2:])
	if t.lba >= u.blocks {
		return outOfRange(t.lba)
	}
	t.in(n)
	return Sense{}
}

// Provisioning status of GET LBA STATUS.
const (
	mapped      = 0
	deallocated = 1
)

// maxExtents is how many descriptors GET LBA STATUS returns.
const maxExtents = 32

// lbaStatus executes GET LBA STATUS.
func (u *Unit) lbaStatus(t *Task) Sense {
	room := min(maxExtents, (int(t.Want)-8)/16)
	b := make([]byte, 8, 8+16*room)
	for lba := t.lba; lba < u.blocks && (len(b)-8)/16 < room; {
		n, status := u.extent(lba)
		b = binary.BigEndian.AppendUint64(b, lba)
		b = binary.BigEndian.AppendUint32(b, n)
		b = append(b, status, 0, 0, 0)
		lba += uint64(n)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	t.put(b)
	return Sense{}
}

// extent returns how many blocks from lba on have the same provisioning status. A block
// is deallocated if all of it is.
func (u *Unit) extent(lba uint64) (n uint32, status byte) {
	left := min(u.blocks-lba, 0xffffffff)
	m, ok := u.conf.Backend.(Mapper)
	if !ok {
		return uint32(left), mapped
	}
	is, octets := m.Mapped(u.offset(lba))
	size := uint64(u.conf.BlockSize)
	if is {
		return uint32(min(left, (uint64(octets)+size-1)/size)), mapped
	}
	if whole := uint64(octets) / size; whole > 0 {
		return uint32(min(left, whole)), deallocated
	}
	return 1, mapped
}
