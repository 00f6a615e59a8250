package unit

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// planInquiry checks an INQUIRY (SPC-4 §6.6).
func planInquiry(_ *Unit, t *Task) Sense {
	if t.CDB[1]&1 == 0 && t.CDB[2] != 0 {
		return badField(2)
	}
	t.in(uint32(binary.BigEndian.Uint16(t.CDB[3:])))
	return Sense{}
}

// in says that the command has at most n octets of Data-In.
func (t *Task) in(n uint32) { t.Dir, t.Want = DataIn, n }

// Peripheral qualifier and device type, the first octet of INQUIRY data.
const (
	disk   = 0x00
	noUnit = 0x7f
)

// inquiry executes INQUIRY.
func (u *Unit) inquiry(t *Task) Sense {
	if t.CDB[1]&1 == 0 {
		t.put(u.standardInquiry())
		return Sense{}
	}
	page, ok := u.vpd(t.CDB[2], t.Nexus)
	if !ok {
		return badField(2)
	}
	t.put(page)
	return Sense{}
}

// Versions of standards that the unit claims (SPC-4 table 142).
var versions = []uint16{
	0x00a0, // SAM-5
	0x0960, // iSCSI
	0x0460, // SPC-4
	0x04c0, // SBC-3
}

// standardInquiry returns the standard INQUIRY data (SPC-4 §6.6.2).
func (u *Unit) standardInquiry() []byte {
	b := make([]byte, 96)
	if u.conf.Backend == nil {
		b[0] = noUnit
	}
	if u.conf.Removable {
		b[1] = 0x80
	}
	b[2] = 0x06 // SPC-4
	b[3] = 0x12 // HISUP, response data format 2
	b[4] = byte(len(b) - 5)
	b[5] = 0x10 // TPGS: implicit ALUA
	if u.conf.ExplicitAccess {
		b[5] |= 0x20 // and explicit
	}
	b[7] = 0x02 // CMDQUE
	pad(b[8:16], u.conf.Vendor)
	pad(b[16:32], u.conf.Product)
	pad(b[32:36], u.conf.Revision)
	for i, v := range versions {
		binary.BigEndian.PutUint16(b[58+2*i:], v)
	}
	return b
}

// pad writes a left-aligned ASCII field (SPC-4 §4.3.1).
func pad(b []byte, s string) {
	for i := copy(b, s); i < len(b); i++ {
		b[i] = ' '
	}
}

// planRequestSense checks a REQUEST SENSE (SPC-4 §6.39).
func planRequestSense(_ *Unit, t *Task) Sense {
	t.in(uint32(t.CDB[4]))
	return Sense{}
}

// requestSense executes REQUEST SENSE. The oldest unit attention condition is reported
// and cleared.
func (u *Unit) requestSense(t *Task) Sense {
	var s Sense
	if u.conf.Backend == nil {
		s = Sense{Key: IllegalRequest, Code: scsi.LogicalUnitNotSupported}
	} else if ua, pending := t.Nexus.attention(); pending {
		s = ua
	} else {
		s = u.notReady()
	}
	if t.CDB[1]&1 != 0 {
		t.put(s.appendDescriptor(nil))
	} else {
		t.put(s.appendFixed(nil))
	}
	return Sense{}
}

// planReportLUNs checks a REPORT LUNS (SPC-4 §6.33).
func planReportLUNs(_ *Unit, t *Task) Sense {
	n := binary.BigEndian.Uint32(t.CDB[6:])
	if n < 16 {
		return badField(6)
	}
	if t.CDB[2] > 2 {
		return badField(2)
	}
	t.in(n)
	return Sense{}
}

// wellKnownOnly is the value of SELECT REPORT for well known logical units, of which
// there are none.
const wellKnownOnly = 1

// reportLUNs executes REPORT LUNS.
func (u *Unit) reportLUNs(t *Task) Sense {
	var luns []uint64
	if t.CDB[2] != wellKnownOnly && t.Nexus.luns != nil {
		luns = t.Nexus.luns()
	}
	b := make([]byte, 8, 8+8*len(luns))
	binary.BigEndian.PutUint32(b, uint32(8*len(luns)))
	for _, l := range luns {
		b = binary.BigEndian.AppendUint64(b, l)
	}
	t.put(b)
	return Sense{}
}
