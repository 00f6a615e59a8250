package unit

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// modePage is a mode page.
type modePage struct {
	code   byte
	length int                 // octets with the header
	fill   func(*Unit, []byte) // writes the current values into the page
	change []byte              // the bits that MODE SELECT may change, by octet
	set    func(*Unit, []byte)
}

// modePages are in the order of MODE SENSE of all pages.
var modePages = []modePage{
	{code: 0x01, length: 12, fill: func(*Unit, []byte) {}}, // Read-Write Error Recovery (SBC-3 §6.5.8)
	{code: 0x08, length: 20, fill: cachingPage},
	{code: 0x0a, length: 12, fill: controlPage, change: []byte{2: dSense, 4: swProtect}, set: setControl},
	{code: 0x1c, length: 12, fill: func(*Unit, []byte) {}}, // Informational Exceptions Control (SBC-3 §6.5.6)
}

const (
	allPages = 0x3f

	dSense    = 0x04 // octet 2 of the control page: D_SENSE
	swProtect = 0x08 // octet 4 of the control page: SWP
)

// cachingPage has WCE: the unit has a volatile write cache (SBC-3 §6.5.5).
func cachingPage(_ *Unit, b []byte) {
	b[2] = 0x04
	binary.BigEndian.PutUint16(b[4:], 0xffff)
	binary.BigEndian.PutUint16(b[10:], 0xffff)
}

// controlPage is the control mode page (SPC-4 §7.5.8). TST is 001b: each nexus has a
// task set of its own.
func controlPage(u *Unit, b []byte) {
	b[2] = 0x20
	if u.descriptors.Load() {
		b[2] |= dSense
	}
	b[3] = 0x10 // QUEUE ALGORITHM MODIFIER: unrestricted reordering
	if u.swp {
		b[4] |= swProtect
	}
}

// setControl changes the control mode page.
func setControl(u *Unit, b []byte) {
	u.descriptors.Store(b[2]&dSense != 0)
	u.swp = b[4]&swProtect != 0
}

// planModeSense checks MODE SENSE (SPC-4 §6.11, §6.12).
func planModeSense(_ *Unit, t *Task) Sense {
	if t.CDB[0] == 0x1a {
		t.in(uint32(t.CDB[4]))
	} else {
		t.in(uint32(binary.BigEndian.Uint16(t.CDB[7:])))
	}
	return Sense{}
}

// Page control of MODE SENSE.
const (
	pcChangeable = 1
	pcSaved      = 3
)

// modeSense executes MODE SENSE.
func (u *Unit) modeSense(t *Task) Sense {
	long := t.CDB[0] == 0x5a
	pc, code, sub := t.CDB[2]>>6, t.CDB[2]&allPages, t.CDB[3]
	if pc == pcSaved {
		return Sense{Key: IllegalRequest, Code: scsi.SavingNotSupported}
	}
	if sub != 0 && (sub != 0xff || code != allPages) {
		return badField(3)
	}
	b := u.modeHeader(long, t.CDB[1]&0x08 == 0)
	start := len(b)
	for i := range modePages {
		if p := &modePages[i]; code == allPages || code == p.code {
			b = p.append(u, b, pc)
		}
	}
	if len(b) == start {
		return badField(2)
	}
	if long {
		binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	} else {
		b[0] = byte(len(b) - 1)
	}
	t.put(b)
	return Sense{}
}

// modeHeader returns a mode parameter header and, if wanted, the block descriptor. The
// caller sets the length.
func (u *Unit) modeHeader(long, descriptor bool) []byte {
	specific := byte(0x10) // DPOFUA
	if _, protected := u.writeProtected(); protected {
		specific |= 0x80
	}
	var d []byte
	if descriptor {
		d = make([]byte, 8)
		binary.BigEndian.PutUint32(d, uint32(min(u.blocks, 0xffffffff)))
		d[4] = 0
		d[5], d[6], d[7] = byte(u.conf.BlockSize>>16), byte(u.conf.BlockSize>>8), byte(u.conf.BlockSize)
	}
	if long {
		return append([]byte{0, 0, 0, specific, 0, 0, 0, byte(len(d))}, d...)
	}
	return append([]byte{0, 0, specific, byte(len(d))}, d...)
}

// append appends the page.
func (p *modePage) append(u *Unit, b []byte, pc byte) []byte {
	at := len(b)
	b = append(b, make([]byte, p.length)...)
	page := b[at:]
	if pc == pcChangeable {
		copy(page, p.change)
	} else {
		if pc == 0 {
			p.fill(u, page)
		} else {
			p.fill(&Unit{conf: u.conf}, page) // default values
		}
	}
	page[0], page[1] = p.code, byte(p.length-2)
	return b
}

// planModeSelect checks MODE SELECT (SPC-4 §6.9, §6.10).
func planModeSelect(_ *Unit, t *Task) Sense {
	n := uint32(t.CDB[4])
	if t.CDB[0] == 0x55 {
		n = uint32(binary.BigEndian.Uint16(t.CDB[7:]))
	}
	if t.CDB[1]&0x10 == 0 || t.CDB[1]&0x01 != 0 {
		return badField(1) // PF must be 1; the unit saves no pages
	}
	t.out(n)
	return Sense{}
}

// out says that the command has n octets of Data-Out.
func (t *Task) out(n uint32) {
	t.Want = n
	if n != 0 {
		t.Dir = DataOut
	}
}

// modeSelect executes MODE SELECT. All pages are checked before one is changed.
func (u *Unit) modeSelect(t *Task) Sense {
	at, s := u.pagesAt(t)
	if s.failed() || len(t.Data) == 0 {
		return s
	}
	for i := at; i < len(t.Data); {
		p, s := u.checkPage(t.Data, i)
		if s.failed() {
			return s
		}
		i += p.length
	}
	changed := false
	for i := at; i < len(t.Data); {
		p := pageOf(t.Data[i] & allPages)
		if p.set != nil {
			p.set(u, t.Data[i:i+p.length])
			changed = true
		}
		i += p.length
	}
	if changed {
		u.others(t.Nexus, func(o *Nexus) { o.attend(scsi.ModeParametersChanged) })
	}
	return Sense{}
}

// pagesAt checks header and block descriptors of a mode parameter list and returns where
// the pages begin.
func (u *Unit) pagesAt(t *Task) (int, Sense) {
	header, n := 4, 0
	b := t.Data
	if t.CDB[0] == 0x55 {
		header = 8
	}
	switch {
	case len(b) == 0:
		return 0, Sense{}
	case len(b) < header:
		return 0, Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	case header == 8:
		n = int(binary.BigEndian.Uint16(b[6:]))
	default:
		n = int(b[3])
	}
	if n != 0 && n != 8 {
		return 0, badParameter(header - 1)
	}
	if len(b) < header+n {
		return 0, Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	}
	if n == 8 {
		d := b[header:]
		size := int(d[5])<<16 | int(d[6])<<8 | int(d[7])
		if size != 0 && size != u.conf.BlockSize {
			return 0, badParameter(header + 5)
		}
	}
	return header + n, Sense{}
}

// pageOf returns the page with the given code, or nil.
func pageOf(code byte) *modePage {
	for i := range modePages {
		if modePages[i].code == code {
			return &modePages[i]
		}
	}
	return nil
}

// checkPage checks the page at offset i of a mode parameter list. The page may differ
// from the current values only in bits that can be changed.
func (u *Unit) checkPage(b []byte, i int) (*modePage, Sense) {
	p := pageOf(b[i] & allPages)
	switch {
	case p == nil || b[i]&0x40 != 0:
		return nil, badParameter(i)
	case len(b)-i < 2:
		return nil, Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	case int(b[i+1]) != p.length-2:
		return nil, badParameter(i + 1)
	case len(b)-i < p.length:
		return nil, Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	}
	now := p.append(u, nil, 0)
	for k := 2; k < p.length; k++ {
		var may byte
		if k < len(p.change) {
			may = p.change[k]
		}
		if (b[i+k]^now[k])&^may != 0 {
			return nil, badParameter(i + k)
		}
	}
	return p, Sense{}
}
