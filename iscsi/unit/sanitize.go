package unit

import "encoding/binary"

// planSanitize checks SANITIZE (SBC-3 §5.19). An overwrite has a parameter list.
func planSanitize(_ *Unit, t *Task) Sense {
	if t.row.sa != overwriteAction {
		return Sense{}
	}
	n := binary.BigEndian.Uint16(t.CDB[7:])
	if n < 5 {
		return badField(7)
	}
	t.out(uint32(n))
	return Sense{}
}

const (
	overwriteAction = 1

	overwriteInvert = 0x80 // octet 0 of the parameter list
	overwriteTest   = 0x60
	overwriteCount  = 0x1f
)

// overwrite executes SANITIZE with the service action OVERWRITE (SBC-3 §5.19.2.3). The
// operation is complete when the command is, also with IMMED.
func (u *Unit) overwrite(t *Task) Sense {
	b := t.Data
	n := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case b[0]&overwriteTest != 0 || b[0]&overwriteCount == 0:
		return badParameter(0)
	case n == 0 || n > u.conf.BlockSize || n != len(b)-4:
		return badParameter(2)
	}
	pattern := make([]byte, u.conf.BlockSize)
	for i := range pattern {
		pattern[i] = b[4+i%n]
	}
	for range b[0] & overwriteCount {
		if s := u.cleanse(func() Sense { return u.fill(0, u.blocks<<u.shift, pattern) }); s.failed() {
			return s
		}
		if b[0]&overwriteInvert != 0 {
			for i := range pattern {
				pattern[i] = ^pattern[i]
			}
		}
	}
	return Sense{}
}

// blockErase executes SANITIZE with the service action BLOCK ERASE: all blocks are zero
// afterwards.
func (u *Unit) blockErase(*Task) Sense {
	return u.cleanse(func() Sense {
		const step = maxUnmapBlocks
		for lba := uint64(0); lba < u.blocks; lba += step {
			n := uint32(min(step, u.blocks-lba))
			s := Sense{}
			if u.thin() {
				s = u.discard(lba, n)
			} else {
				s = u.zero(lba, n)
			}
			if s.failed() {
				return s
			}
		}
		return Sense{}
	})
}

// cleanse runs a sanitize operation. If the operation fails, the unit refuses commands
// to the medium until another one succeeds or EXIT FAILURE MODE comes.
func (u *Unit) cleanse(operate func() Sense) Sense {
	s := operate()
	if !s.failed() {
		s = u.sync()
	}
	if u.unclean = s.failed(); u.unclean {
		return Sense{Key: MediumError, Code: SanitizeFailed}
	}
	return Sense{}
}

// exitFailureMode executes SANITIZE with the service action EXIT FAILURE MODE.
func (u *Unit) exitFailureMode(*Task) Sense {
	u.unclean = false
	return Sense{}
}
