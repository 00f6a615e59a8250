package scsi

// TestUnitReady returns TEST UNIT READY (SPC-4 §6.47).
func TestUnitReady() CDB { return CDB{} }

// RequestSense returns REQUEST SENSE for the fixed format (SPC-4 §6.39). most is the
// allocation length.
func RequestSense(most uint8) CDB { return CDB{0: 0x03, 4: most} }

// StandardInquiry returns INQUIRY for the standard data (SPC-4 §6.6). most is the
// allocation length.
func StandardInquiry(most uint16) (c CDB) {
	c[0] = 0x12
	c.put16(3, most)
	return c
}

// VPDInquiry returns INQUIRY for a page of vital product data (SPC-4 §6.6). most is the
// allocation length.
func VPDInquiry(page uint8, most uint16) CDB {
	c := StandardInquiry(most)
	c[1], c[2] = 0x01, page
	return c
}

// The values of SELECT REPORT in REPORT LUNS (SPC-4 §6.33).
const (
	SelectUnits     = 0 // logical units but well known ones
	SelectWellKnown = 1
	SelectAll       = 2
)

// ReportLUNs returns REPORT LUNS (SPC-4 §6.33). most is the allocation length, at least
// 16.
func ReportLUNs(selectReport uint8, most uint32) (c CDB) {
	c[0], c[2] = 0xa0, selectReport
	c.put32(6, most)
	return c
}

// ModeSense6 returns MODE SENSE(6) for the current values of a page, without block
// descriptors (SPC-4 §6.11). most is the allocation length.
func ModeSense6(page, subpage, most uint8) CDB {
	return CDB{0: 0x1a, 1: 0x08, 2: page & modePageMask, 3: subpage, 4: most}
}

// ModeSense10 returns MODE SENSE(10) for the current values of a page, without block
// descriptors (SPC-4 §6.12). most is the allocation length.
func ModeSense10(page, subpage uint8, most uint16) (c CDB) {
	c[0], c[1], c[2], c[3] = 0x5a, 0x08, page&modePageMask, subpage
	c.put16(7, most)
	return c
}

// ModeSelect10 returns MODE SELECT(10) for pages of the standard format (SPC-4 §6.10).
// length is that of the parameter list in octets. save: the target keeps the values over
// a loss of power.
func ModeSelect10(length uint16, save bool) (c CDB) {
	c[0], c[1] = 0x55, 0x10
	if save {
		c[1] |= 0x01
	}
	c.put16(7, length)
	return c
}

// PersistentReserveIn returns PERSISTENT RESERVE IN (SPC-4 §6.15). most is the allocation
// length.
func PersistentReserveIn(a PersistInAction, most uint16) (c CDB) {
	c[0], c[1] = 0x5e, uint8(a)
	c.put16(7, most)
	return c
}

// PersistentReserveOut returns PERSISTENT RESERVE OUT (SPC-4 §6.16) for a parameter list
// of PersistOutLen octets.
func PersistentReserveOut(a PersistOutAction, t ReservationType) (c CDB) {
	c[0], c[1], c[2] = 0x5f, uint8(a), uint8(t)
	c.put32(5, PersistOutLen)
	return c
}

// Reserve6 and Release6 return RESERVE(6) and RELEASE(6) (SPC-2 §7.21, §7.16).
func Reserve6() CDB { return CDB{0x16} }

// Release6 returns RELEASE(6).
func Release6() CDB { return CDB{0x17} }

// ReportTargetPortGroups returns REPORT TARGET PORT GROUPS (SPC-4 §6.37). most is the
// allocation length.
func ReportTargetPortGroups(most uint32) (c CDB) {
	c[0], c[1] = 0xa3, 0x0a
	c.put32(6, most)
	return c
}

// SetTargetPortGroups returns SET TARGET PORT GROUPS (SPC-4 §6.45). length is that of the
// parameter list in octets.
func SetTargetPortGroups(length uint32) (c CDB) {
	c[0], c[1] = 0xa4, 0x0a
	c.put32(6, length)
	return c
}

// ReportSupportedOpcode returns REPORT SUPPORTED OPERATION CODES for one command (SPC-4
// §6.35). hasAction: the command has a service action. most is the allocation length.
func ReportSupportedOpcode(op uint8, sa uint16, hasAction bool, most uint32) (c CDB) {
	c[0], c[1], c[2], c[3] = 0xa3, 0x0c, 0x01, op
	if hasAction {
		c[2] = 0x02
		c.put16(4, sa)
	}
	c.put32(6, most)
	return c
}
