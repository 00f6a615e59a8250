package unit

import "github.com/stag-rdma/stag/iscsi/scsi"

// Fields of octet 4 of START STOP UNIT (SBC-3 §5.22).
const (
	start          = 0x01
	loadEject      = 0x02
	powerCondition = 0xf0
)

// startStop executes START STOP UNIT. Only loading and ejecting have an effect: this
// medium has no motor, so it is as ready in every power condition, and when it is
// stopped.
func (u *Unit) startStop(t *Task) Sense {
	b := t.CDB[4]
	if b&powerCondition != 0 || b&loadEject == 0 {
		return Sense{}
	}
	if !u.conf.Removable {
		return badField(4)
	}
	if u.prevented() {
		return Sense{Key: IllegalRequest, Code: scsi.RemovalPrevented}
	}
	loaded := u.ejected && b&start != 0
	u.ejected = b&start == 0
	if loaded {
		u.others(t.Nexus, func(o *Nexus) { o.attend(scsi.MediumMayHaveChanged) })
	}
	return Sense{}
}

// prevented reports whether a nexus prevents the removal of the medium.
func (u *Unit) prevented() bool {
	for _, n := range u.nexuses {
		if n.prevents {
			return true
		}
	}
	return false
}

// planPrevent checks PREVENT ALLOW MEDIUM REMOVAL (SBC-3 §5.9).
func planPrevent(_ *Unit, t *Task) Sense {
	if t.CDB[4] > 1 {
		return badField(4) // obsolete values
	}
	return Sense{}
}

// prevent executes PREVENT ALLOW MEDIUM REMOVAL.
func (u *Unit) prevent(t *Task) Sense {
	t.Nexus.prevents = t.CDB[4] == 1
	return Sense{}
}
