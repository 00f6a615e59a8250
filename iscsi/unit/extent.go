package unit

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// outOfRange is the sense of an LBA that does not exist.
func outOfRange(lba uint64) Sense {
	return Sense{Key: IllegalRequest, Code: scsi.LBAOutOfRange, Info: lba, HasInfo: true}
}

// offset returns the octet at which a block begins.
func (u *Unit) offset(lba uint64) int64 { return int64(lba << u.shift) }

// octets returns the length of n blocks.
func (u *Unit) octets(n uint32) uint64 { return uint64(n) << u.shift }

// takeExtent reads LOGICAL BLOCK ADDRESS and TRANSFER LENGTH, which have the same place
// in most CDBs of a length.
func (t *Task) takeExtent() {
	c := t.CDB[:]
	switch len(t.row.usage) {
	case 6:
		t.lba = uint64(c[1]&0x1f)<<16 | uint64(binary.BigEndian.Uint16(c[2:]))
		t.blocks = uint32(c[4])
		if t.blocks == 0 {
			t.blocks = 256
		}
	case 10:
		t.lba, t.blocks = uint64(binary.BigEndian.Uint32(c[2:])), uint32(binary.BigEndian.Uint16(c[7:]))
	case 12:
		t.lba, t.blocks = uint64(binary.BigEndian.Uint32(c[2:])), binary.BigEndian.Uint32(c[6:])
	case 16:
		t.lba, t.blocks = binary.BigEndian.Uint64(c[2:]), binary.BigEndian.Uint32(c[10:])
	}
}

// inside returns a reason unless the task's blocks are blocks of the medium (SBC-3
// §4.5).
func (u *Unit) inside(t *Task) Sense {
	if t.lba > u.blocks || uint64(t.blocks) > u.blocks-t.lba || t.lba == u.blocks && t.blocks != 0 {
		return outOfRange(t.lba)
	}
	return Sense{}
}

// lengthAt is the octet where the field TRANSFER LENGTH begins in a CDB of n octets.
func lengthAt(n int) int {
	return map[int]int{6: 4, 10: 7, 12: 6, 16: 10}[n]
}

// transfer checks the task's blocks, and returns their length in octets. The transfer is
// at most MAXIMUM TRANSFER LENGTH (SBC-3 §6.6.4).
func (u *Unit) transfer(t *Task) (uint32, Sense) {
	t.takeExtent()
	if s := u.inside(t); s.failed() {
		return 0, s
	}
	n := u.octets(t.blocks)
	if n > uint64(u.conf.MaxTransfer) {
		return 0, badField(lengthAt(len(t.row.usage)))
	}
	return uint32(n), Sense{}
}

// planExtent checks a command with a range of blocks and without data. A length of 0
// means all blocks from the LBA on.
func planExtent(u *Unit, t *Task) Sense {
	t.takeExtent()
	return u.inside(t)
}
