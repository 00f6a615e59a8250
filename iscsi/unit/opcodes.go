package unit

import "encoding/binary"

// Reporting options of REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35.1).
const (
	reportAll       = 0
	reportOpcode    = 1
	reportAction    = 2
	reportAny       = 3 // operation code with or without service action
	optionMask      = 7
	returnTimeouts  = 0x80 // RCTD
	timeoutsLength  = 12
	actionValid     = 0x01 // SERVACTV
	timeoutsPresent = 0x02 // CTDP
)

// planReportOpcodes checks REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35).
func planReportOpcodes(_ *Unit, t *Task) Sense {
	option, op := t.CDB[2]&optionMask, t.CDB[3]
	if option > reportAny {
		return badField(2)
	}
	candidates := rows[op]
	actions := len(candidates) > 0 && candidates[0].sa != none
	if option == reportOpcode && actions || option == reportAction && len(candidates) > 0 && !actions {
		return badField(2)
	}
	t.in(binary.BigEndian.Uint32(t.CDB[6:]))
	return Sense{}
}

// reportOpcodes executes REPORT SUPPORTED OPERATION CODES.
func (u *Unit) reportOpcodes(t *Task) Sense {
	timeouts := t.CDB[2]&returnTimeouts != 0
	if t.CDB[2]&optionMask != reportAll {
		t.put(u.oneOpcode(t, timeouts))
		return Sense{}
	}
	b := make([]byte, 4)
	for i := range table {
		r := &table[i]
		if !u.supports(r) {
			continue
		}
		d := [8]byte{0: r.op, 7: byte(len(r.usage))}
		if r.sa != none {
			d[3], d[5] = byte(r.sa), actionValid
		}
		if timeouts {
			d[5] |= timeoutsPresent
		}
		b = append(b, d[:]...)
		if timeouts {
			b = appendTimeouts(b)
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	t.put(b)
	return Sense{}
}

// oneOpcode returns the parameter data for one command.
func (u *Unit) oneOpcode(t *Task, timeouts bool) []byte {
	const (
		notSupported = 1
		standard     = 3
	)
	op, sa := t.CDB[3], int(binary.BigEndian.Uint16(t.CDB[4:]))
	for _, r := range rows[op] {
		if r.sa != none && r.sa != sa || !u.supports(r) {
			continue
		}
		b := []byte{0, standard, 0, byte(len(r.usage))}
		b = append(b, r.usage...)
		if timeouts {
			b[1] |= 0x80
			b = appendTimeouts(b)
		}
		return b
	}
	return []byte{0, notSupported, 0, 0}
}

// appendTimeouts appends a command timeouts descriptor without values.
func appendTimeouts(b []byte) []byte {
	return append(b, 0, timeoutsLength-2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// supports reports whether the unit has the command at all.
func (u *Unit) supports(r *row) bool {
	switch r.op {
	case opUnmap:
		return u.thin()
	case opSetPortGroups:
		return u.conf.ExplicitAccess
	}
	return true
}
