package unit

import "github.com/stag-rdma/stag/iscsi/scsi"

// planCompareAndWrite checks COMPARE AND WRITE (SBC-3 §5.2). Data-Out has the blocks to
// compare with, and then the blocks to write.
func planCompareAndWrite(u *Unit, t *Task) Sense {
	t.takeExtent() // for the LBA
	t.blocks = uint32(t.CDB[13])
	if s := u.inside(t); s.failed() {
		return s
	}
	if t.blocks > uint32(u.maxCompare()) {
		return badField(13)
	}
	t.out(uint32(2 * u.octets(t.blocks)))
	if t.EDTL > t.Want { // the initiator means more blocks
		return badField(13)
	}
	return Sense{}
}

// compareAndWrite executes COMPARE AND WRITE.
func (u *Unit) compareAndWrite(t *Task) Sense {
	half := len(t.Data) / 2
	old, next := t.Data[:half], t.Data[half:]
	if half == 0 {
		return Sense{}
	}
	differ := -1
	if c, ok := u.conf.Backend.(ComparerAndWriter); ok {
		var err error
		if differ, err = c.CompareAndWrite(u.offset(t.lba), old, next); err != nil {
			return Sense{Key: MediumError, Code: scsi.WriteError, Info: t.lba, HasInfo: true}
		}
	} else {
		now := make([]byte, half)
		if s := u.readAt(now, t.lba); s.failed() {
			return s
		}
		if differ = differAt(now, old); differ < 0 {
			if s := u.writeAt(next, t.lba); s.failed() {
				return s
			}
		}
	}
	if differ >= 0 {
		return miscompare(differ)
	}
	return u.force(t)
}

// orWrite executes ORWRITE(16) (SBC-3 §5.7).
func (u *Unit) orWrite(t *Task) Sense {
	buf := make([]byte, min(len(t.Data), piece))
	lba := t.lba
	for data := t.Data; len(data) != 0; {
		b := buf[:min(len(data), piece)]
		if s := u.readAt(b, lba); s.failed() {
			return s
		}
		for i := range b {
			b[i] |= data[i]
		}
		if s := u.writeAt(b, lba); s.failed() {
			return s
		}
		lba += uint64(len(b)) >> u.shift
		data = data[len(b):]
	}
	return u.force(t)
}
