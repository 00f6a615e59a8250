package session

import "github.com/stag-rdma/stag/iscsi/scsi"

// MaxReplays is how often a command is sent again. A command that ends the target's
// connection each time must not do so for ever.
const MaxReplays = 5

// Repeatable reports whether a second execution of the command has the effect of one.
// Unknown commands are not repeatable.
func Repeatable(c *scsi.CDB) bool { return c.Op().Repeatable }

// Changes reports whether a late execution of the command by the target may change what
// later commands see. An unknown command may.
func Changes(c *scsi.CDB) bool {
	op := c.Op()
	switch {
	case op.Name == "":
		return true
	case op.Dir == scsi.DataIn:
		return false
	case op.Dir == scsi.NoData:
		return !op.Repeatable
	}
	switch c[0] {
	case 0x2f, 0x8f, 0xaf: // VERIFY
		return false
	}
	return true
}

// units is a set of logical units. It is empty but for the time after a loss.
type units []uint64

func (u units) has(lun uint64) bool {
	for _, l := range u {
		if l == lun {
			return true
		}
	}
	return false
}

func (u *units) add(lun uint64) {
	if !u.has(lun) {
		*u = append(*u, lun)
	}
}

func (u *units) remove(lun uint64) {
	for i, l := range *u {
		if l == lun {
			*u = append((*u)[:i], (*u)[i+1:]...)
			return
		}
	}
}
