package scsi

import (
	"encoding/binary"
	"slices"
)

// Mode pages of a disk. PageCode and subpage name a page.
const (
	ModeErrorRecovery uint8 = 0x01 // SBC-3 §6.5.8
	ModeCaching       uint8 = 0x08 // SBC-3 §6.5.5
	ModeControl       uint8 = 0x0a // SPC-4 §7.5.8
	ModeExceptions    uint8 = 0x1c // SBC-3 §6.5.6
	ModeAll           uint8 = 0x3f

	modePageMask   = 0x3f
	modeSubpageBit = 0x40
	modeSavable    = 0x80
	modeProtected  = 0x80
	modeForceable  = 0x10
)

// Mode is what MODE SENSE returned (SPC-4 §7.5.3).
type Mode struct {
	WriteProtected bool // WP
	ForceAccess    bool // DPOFUA: the unit has DPO and FUA
	Pages          []ModePage
}

// ModePage is a mode page (SPC-4 §7.5.7).
type ModePage struct {
	Code, Subpage uint8
	Savable       bool   // PS
	Values        []byte // the octets behind the page length
}

// ParseMode6 reads the data of MODE SENSE(6).
func ParseMode6(b []byte) (m Mode, err error) {
	const head = 4
	if len(b) < head {
		return Mode{}, short("MODE SENSE(6) data", len(b), head)
	}
	return parseMode(b[:min(len(b), 1+int(b[0]))], head, b[2], int(b[3])), nil
}

// ParseMode10 reads the data of MODE SENSE(10).
func ParseMode10(b []byte) (m Mode, err error) {
	const head = 8
	if len(b) < head {
		return Mode{}, short("MODE SENSE(10) data", len(b), head)
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return parseMode(b[:min(len(b), n)], head, b[3], int(binary.BigEndian.Uint16(b[6:]))), nil
}

// parseMode reads the pages behind header and block descriptors. A page that is cut off
// is left out.
func parseMode(b []byte, head int, specific uint8, descriptors int) Mode {
	m := Mode{WriteProtected: specific&modeProtected != 0, ForceAccess: specific&modeForceable != 0}
	b = b[min(len(b), head+descriptors):]
	for {
		p, n := parseModePage(b)
		if n == 0 {
			return m
		}
		m.Pages, b = append(m.Pages, p), b[n:]
	}
}

// parseModePage reads the first page of b. n is its length, or 0 if there is no whole
// page.
func parseModePage(b []byte) (p ModePage, n int) {
	head := 2
	if len(b) >= head && b[0]&modeSubpageBit != 0 {
		head = 4
	}
	if len(b) < head {
		return ModePage{}, 0
	}
	p = ModePage{Code: b[0] & modePageMask, Savable: b[0]&modeSavable != 0}
	if n = head + int(b[1]); head == 4 {
		p.Subpage, n = b[1], head+int(binary.BigEndian.Uint16(b[2:]))
	}
	if n > len(b) {
		return ModePage{}, 0
	}
	p.Values = slices.Clone(b[head:n])
	return p, n
}

// Page returns the values of a page.
func (m Mode) Page(code, subpage uint8) (values []byte, ok bool) {
	for _, p := range m.Pages {
		if p.Code == code && p.Subpage == subpage {
			return p.Values, true
		}
	}
	return nil, false
}

// WriteCache reports whether the unit has a volatile write cache that is enabled: WCE of
// the caching page (SBC-3 §6.5.5). known is false if there is no such page.
func (m Mode) WriteCache() (enabled, known bool) {
	values, ok := m.Page(ModeCaching, 0)
	if !ok || len(values) == 0 {
		return false, false
	}
	return values[0]&0x04 != 0, true
}

// DescriptorSense reports whether sense data have the descriptor format: D_SENSE of the
// control page (SPC-4 §7.5.8).
func (m Mode) DescriptorSense() bool {
	values, _ := m.Page(ModeControl, 0)
	return len(values) != 0 && values[0]&0x04 != 0
}
