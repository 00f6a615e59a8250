package unit

import (
	"bytes"
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Bits of octet 1 of WRITE SAME (SBC-3 §5.41, §5.42).
const (
	sameUnmap  = 0x08
	sameNoData = 0x01 // NDOB, of the 16-octet CDB
)

// planWriteSame checks WRITE SAME. A length of 0 is refused (WSNZ, SBC-3 §6.6.4).
func planWriteSame(u *Unit, t *Task) Sense {
	t.takeExtent()
	if s := u.inside(t); s.failed() {
		return s
	}
	if t.blocks == 0 || uint64(t.blocks) > u.maxSame() {
		return badField(lengthAt(len(t.row.usage)))
	}
	if t.CDB[1]&sameUnmap != 0 && !u.thin() {
		return badField(1)
	}
	if t.CDB[1]&sameNoData == 0 {
		t.out(uint32(u.conf.BlockSize))
	}
	if t.EDTL > t.Want { // the initiator means longer blocks
		return Sense{Key: IllegalRequest, Code: scsi.InvalidFieldInInformationUnit}
	}
	return Sense{}
}

// writeSame executes WRITE SAME. With UNMAP, blocks of zeros are unmapped and other
// blocks are written, because unmapped blocks read as zero.
func (u *Unit) writeSame(t *Task) Sense {
	block := t.Data
	if len(block) == 0 {
		block = make([]byte, u.conf.BlockSize)
	}
	if !allZero(block) {
		return u.fill(t.lba, u.octets(t.blocks), block)
	}
	if t.CDB[1]&sameUnmap != 0 {
		return u.discard(t.lba, t.blocks)
	}
	return u.zero(t.lba, t.blocks)
}

// allZero reports whether b has only zeros.
func allZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[:len(b)-1], b[1:])
}

// fill writes copies of block over n octets.
func (u *Unit) fill(lba, n uint64, block []byte) Sense {
	buf := bytes.Repeat(block, int(min(n, piece))/len(block))
	for n != 0 {
		b := buf[:min(n, uint64(len(buf)))]
		if s := u.writeAt(b, lba); s.failed() {
			return s
		}
		lba += uint64(len(b)) >> u.shift
		n -= uint64(len(b))
	}
	return Sense{}
}

// zero writes zeros to n blocks.
func (u *Unit) zero(lba uint64, n uint32) Sense {
	z, ok := u.conf.Backend.(Zeroer)
	if !ok {
		return u.fill(lba, u.octets(n), make([]byte, u.conf.BlockSize))
	}
	if err := z.Zero(u.offset(lba), int64(u.octets(n))); err != nil {
		return Sense{Key: MediumError, Code: scsi.WriteError, Info: lba, HasInfo: true}
	}
	return Sense{}
}

// discard unmaps n blocks. The unit must be thin.
func (u *Unit) discard(lba uint64, n uint32) Sense {
	if n == 0 {
		return Sense{}
	}
	if err := u.conf.Backend.(Discarder).Discard(u.offset(lba), int64(u.octets(n))); err != nil {
		return Sense{Key: MediumError, Code: scsi.WriteError, Info: lba, HasInfo: true}
	}
	return Sense{}
}

const (
	opUnmap          = 0x42
	unmapHeader      = 8
	unmapDescriptor  = 16
	unmapListMinimum = unmapHeader
)

// planUnmap checks UNMAP (SBC-3 §5.25).
func planUnmap(u *Unit, t *Task) Sense {
	if !u.thin() {
		return Sense{Key: IllegalRequest, Code: scsi.InvalidOperationCode}
	}
	n := uint32(binary.BigEndian.Uint16(t.CDB[7:]))
	if n != 0 && n < unmapListMinimum {
		return Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	}
	t.out(n)
	return Sense{}
}

// unmap executes UNMAP. All descriptors are checked before a block is unmapped.
func (u *Unit) unmap(t *Task) Sense {
	if len(t.Data) == 0 {
		return Sense{}
	}
	list := t.Data[unmapHeader:]
	list = list[:min(len(list), int(binary.BigEndian.Uint16(t.Data[2:])))]
	list = list[:len(list)/unmapDescriptor*unmapDescriptor]
	if len(list)/unmapDescriptor > maxUnmapDescriptors {
		return badParameter(2)
	}
	var total uint64
	for i := 0; i < len(list); i += unmapDescriptor {
		lba, n := unmapExtent(list[i:])
		if lba > u.blocks || uint64(n) > u.blocks-lba {
			return outOfRange(lba)
		}
		if total += uint64(n); total > maxUnmapBlocks {
			return badParameter(unmapHeader + i + 8)
		}
	}
	for i := 0; i < len(list); i += unmapDescriptor {
		lba, n := unmapExtent(list[i:])
		if s := u.discard(lba, n); s.failed() {
			return s
		}
	}
	return Sense{}
}

// unmapExtent reads an UNMAP block descriptor.
func unmapExtent(b []byte) (lba uint64, n uint32) {
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])
}
