package unit

import "encoding/binary"

// planPersistIn checks PERSISTENT RESERVE IN (SPC-4 §6.15).
func planPersistIn(_ *Unit, t *Task) Sense {
	t.in(uint32(binary.BigEndian.Uint16(t.CDB[7:])))
	return Sense{}
}

// persistHeader begins parameter data: PRGENERATION and the length, which finish sets.
func (u *Unit) persistHeader() []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 0, 64), u.pr.generation)[:8]
}

// finish sets ADDITIONAL LENGTH and gives the data to the task.
func finish(t *Task, b []byte) Sense {
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	t.put(b)
	return Sense{}
}

// readKeys executes the service action READ KEYS.
func (u *Unit) readKeys(t *Task) Sense {
	b := u.persistHeader()
	for _, r := range u.pr.keys {
		b = binary.BigEndian.AppendUint64(b, r.Key)
	}
	return finish(t, b)
}

// readReservation executes the service action READ RESERVATION.
func (u *Unit) readReservation(t *Task) Sense {
	b := u.persistHeader()
	if u.pr.kind != 0 {
		var key uint64
		if i := u.pr.find(u.pr.holder); i >= 0 && !u.pr.kind.allHold() {
			key = u.pr.keys[i].Key
		}
		b = binary.BigEndian.AppendUint64(b, key)
		b = append(b, 0, 0, 0, 0, 0, byte(u.pr.kind), 0, 0)
	}
	return finish(t, b)
}

// reportCapabilities executes the service action REPORT CAPABILITIES.
func (u *Unit) reportCapabilities(t *Task) Sense {
	b := []byte{0, 8, 0, 0x80, 0xea, 0x01, 0, 0} // type mask valid; all six types
	if u.conf.Save != nil {
		b[2] |= 0x01 // PTPL_C
	}
	if u.pr.aptpl {
		b[3] |= 0x01 // PTPL_A
	}
	t.put(b)
	return Sense{}
}

// readFullStatus executes the service action READ FULL STATUS.
func (u *Unit) readFullStatus(t *Task) Sense {
	b := u.persistHeader()
	for _, r := range u.pr.keys {
		d := make([]byte, 24)
		binary.BigEndian.PutUint64(d, r.Key)
		if u.pr.holds(r.Name) {
			d[12], d[13] = 0x01, byte(u.pr.kind) // R_HOLDER
		}
		binary.BigEndian.PutUint16(d[18:], u.conf.PortGroup)
		id := transportID(r.Name)
		binary.BigEndian.PutUint32(d[20:], uint32(len(id)))
		b = append(append(b, d...), id...)
	}
	return finish(t, b)
}

// transportID returns the TransportID of an iSCSI initiator port (SPC-4 §7.6.4.6).
func transportID(port string) []byte {
	const withISID = 0x40
	n := name(port)
	b := []byte{withISID | protocolISCSI, 0, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(len(n)))
	return append(b, n...)
}
