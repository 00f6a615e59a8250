package unit

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// planRead checks READ (SBC-3 §5.10 to §5.13).
func planRead(u *Unit, t *Task) Sense {
	n, s := u.transfer(t)
	if !s.failed() && n != 0 {
		t.in(n)
	}
	return s
}

// planWrite checks WRITE (SBC-3 §5.32 to §5.35) and ORWRITE (§5.7).
func planWrite(u *Unit, t *Task) Sense {
	n, s := u.transfer(t)
	if !s.failed() {
		t.out(n)
	}
	return s
}

// planWriteAtomic checks WRITE ATOMIC(16) (SBC-4 §5.50). The exclusive run makes the
// write atomic.
func planWriteAtomic(u *Unit, t *Task) Sense {
	t.lba, t.blocks = binary.BigEndian.Uint64(t.CDB[2:]), uint32(binary.BigEndian.Uint16(t.CDB[12:]))
	if s := u.inside(t); s.failed() {
		return s
	}
	if t.blocks > u.maxAtomic() {
		return badField(12)
	}
	t.out(uint32(u.octets(t.blocks)))
	return Sense{}
}

// forceAccess is the bit FUA of the CDBs with 10 or more octets.
const forceAccess = 0x08

// read executes READ.
func (u *Unit) read(t *Task) Sense {
	t.Length = t.Want
	if t.Lent || len(t.Data) == 0 {
		return Sense{}
	}
	return u.readAt(t.Data, t.lba)
}

// write executes WRITE. The data of a lent task is there already. Its memory is lent anew,
// because the blocks may have been unmapped while the data was on its way: the backend then
// has to know that they have storage again.
func (u *Unit) write(t *Task) Sense {
	if t.Lent {
		u.conf.Backend.(Lender).Lend(u.offset(t.lba), int64(len(t.Data)), true)
	}
	if !t.Lent && len(t.Data) != 0 {
		if s := u.writeAt(t.Data, t.lba); s.failed() {
			return s
		}
	}
	return u.force(t)
}

// force makes the medium stable if the command asks for it by FUA.
func (u *Unit) force(t *Task) Sense {
	if len(t.row.usage) > 6 && t.row.usage[1]&t.CDB[1]&forceAccess != 0 {
		return u.sync()
	}
	return Sense{}
}

// readAt reads the medium from lba on.
func (u *Unit) readAt(b []byte, lba uint64) Sense {
	if _, err := u.conf.Backend.ReadAt(b, u.offset(lba)); err != nil {
		return Sense{Key: MediumError, Code: scsi.UnrecoveredReadError, Info: lba, HasInfo: true}
	}
	return Sense{}
}

// writeAt writes the medium from lba on. The rest of a last block that b has in part
// stays as it is.
func (u *Unit) writeAt(b []byte, lba uint64) Sense {
	if rest := len(b) % u.conf.BlockSize; rest != 0 {
		whole := b[:len(b)-rest]
		block := make([]byte, u.conf.BlockSize)
		at := lba + uint64(len(whole))>>u.shift
		if s := u.readAt(block, at); s.failed() {
			return s
		}
		copy(block, b[len(whole):])
		if s := u.writeAt(block, at); s.failed() || len(whole) == 0 {
			return s
		}
		b = whole
	}
	if _, err := u.conf.Backend.WriteAt(b, u.offset(lba)); err != nil {
		return Sense{Key: MediumError, Code: scsi.WriteError, Info: lba, HasInfo: true}
	}
	return Sense{}
}

// sync makes the medium stable.
func (u *Unit) sync() Sense {
	if err := u.conf.Backend.Sync(); err != nil {
		return Sense{Key: MediumError, Code: scsi.WriteError}
	}
	return Sense{}
}

// synchronize executes SYNCHRONIZE CACHE (SBC-3 §5.23), always for the whole medium.
func (u *Unit) synchronize(*Task) Sense { return u.sync() }

// prefetch executes PRE-FETCH (SBC-3 §5.8). The status says that the blocks are not all
// in a cache.
func (u *Unit) prefetch(*Task) Sense { return Sense{} }
