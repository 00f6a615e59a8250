package unit

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// SPC-4 §6.6.2.
func TestInquiry(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Vendor, c.Removable = "ACME", true })
	b := r.good(r.a, "12 00 00 00 ff 00", nil, 255)
	if len(b) != 96 || b[4] != 91 || b[0] != 0 || b[1] != 0x80 || b[2] != 6 || b[3] != 0x12 || string(b[8:32]) != "ACME    VIRTUAL-DISK    " {
		t.Errorf("% x", b)
	}
	r.bad(r.a, "12 00 80 00 ff 00", nil, 255, IllegalRequest, scsi.InvalidFieldInCDB)
	r.bad(r.a, "12 01 99 00 ff 00", nil, 255, IllegalRequest, scsi.InvalidFieldInCDB)
	if b = r.good(r.a, "12 00 00 00 05 00", nil, 255); len(b) != 5 {
		t.Errorf("allocation length 5: %d octets", len(b))
	}
}

// SPC-4 §7.8 and SBC-3 §6.6: lengths of pages, and the page list in ascending order.
func TestVPD(t *testing.T) {
	r := newRig(t)
	list := r.good(r.a, "12 01 00 00 ff 00", nil, 255)
	if want := []byte{0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2}; !bytes.Equal(list[4:], want) {
		t.Errorf("pages % x, want % x", list[4:], want)
	}
	for _, code := range list[4:] {
		cdb := octets(t, "12 01 00 02 00 00")
		cdb[2] = code
		b := r.good(r.a, string(hexOf(cdb)), nil, 512)
		if b[1] != code || int(binary.BigEndian.Uint16(b[2:])) != len(b)-4 {
			t.Errorf("page %#x: % x", code, b)
		}
		if slices.Contains([]byte{0x86, 0xb0, 0xb1}, code) && len(b) != 64 {
			t.Errorf("page %#x has %d octets", code, len(b))
		}
	}
	if b := r.good(r.a, "12 01 80 00 ff 00", nil, 255); string(b[4:]) != "S1" {
		t.Errorf("serial number %q", b[4:])
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// SPC-4 §7.8.5: the identification page has a name of the unit that lasts, and the
// names of target and port.
func TestIdentification(t *testing.T) {
	read := func(serial string) (naa []byte, all []byte) {
		r := newRig(t, func(c *Config) { c.Serial = serial })
		b := r.good(r.a, "12 01 83 04 00 00", nil, 1024)
		for at := 4; at < len(b); at += 4 + int(b[at+3]) {
			if b[at+1] == typeNAA {
				naa = b[at+4 : at+12]
			}
		}
		return naa, b
	}
	one, all := read("S1")
	again, _ := read("S1")
	two, _ := read("S2")
	if len(one) != 8 || one[0]>>4 != 3 || !bytes.Equal(one, again) || bytes.Equal(one, two) {
		t.Errorf("identifiers % x, % x, % x", one, again, two)
	}
	for _, want := range []string{"iqn.2026-01.test:t,t,0x0001\x00", "iqn.2026-01.test:t\x00\x00"} {
		if !bytes.Contains(all, []byte(want)) {
			t.Errorf("no %q in % x", want, all)
		}
	}
}

// SBC-3 §5.15, §5.16.
func TestReadCapacity(t *testing.T) {
	r := newRig(t)
	if b := r.good(r.a, "25 00 00 00 00 00 00 00 00 00", nil, 8); !bytes.Equal(b, octets(t, "000003ff 00000200")) {
		t.Errorf("% x", b)
	}
	b := r.good(r.a, "9e 10 00 00 00 00 00 00 00 00 00 00 00 20 00 00", nil, 32)
	if len(b) != 32 || !bytes.Equal(b[:16], octets(t, "00000000000003ff 00000200 00 00 c0 00")) {
		t.Errorf("% x", b)
	}
	r.bad(r.a, "25 00 00 00 00 01 00 00 00 00", nil, 8, IllegalRequest, scsi.InvalidFieldInCDB)
}

// SPC-4 §6.33: LUNs, also for a LUN without a unit.
func TestReportLUNs(t *testing.T) {
	r := newRig(t)
	const cdb = "a0 00 00 00 00 00 00 00 10 00 00 00"
	want := octets(t, "00000010 00000000 0000000000000000 0001000000000000")
	if b := r.good(r.a, cdb, nil, 4096); !bytes.Equal(b, want) {
		t.Errorf("% x", b)
	}
	r.bad(r.a, "a0 00 00 00 00 00 00 00 00 0f 00 00", nil, 4096, IllegalRequest, scsi.InvalidFieldInCDB)
	absent, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.unit = absent
	n := absent.Attach("iqn.a", func() []uint64 { return []uint64{0, 1 << 48} })
	if b := r.good(n, cdb, nil, 4096); !bytes.Equal(b, want) {
		t.Errorf("LUN without a unit: % x", b)
	}
	if b := r.good(n, "12 00 00 00 ff 00", nil, 255); b[0] != 0x7f {
		t.Errorf("peripheral %#x, want 7fh", b[0])
	}
	r.bad(n, "00 00 00 00 00 00", nil, 0, IllegalRequest, scsi.LogicalUnitNotSupported)
	r.bad(n, cdb10(0x28, 0, 0, 1), nil, 512, IllegalRequest, scsi.LogicalUnitNotSupported)
	if b := r.good(n, "03 00 00 00 ff 00", nil, 255); b[2] != byte(IllegalRequest) || b[12] != 0x25 {
		t.Errorf("REQUEST SENSE: % x", b)
	}
}

// SPC-4 §6.11, §6.12, §7.5: all pages, one page, changeable values, and what cannot be
// had.
func TestModeSense(t *testing.T) {
	r := newRig(t)
	b := r.good(r.a, "1a 08 3f 00 ff 00", nil, 255)
	if int(b[0]) != len(b)-1 || b[3] != 0 || b[2] != 0x10 {
		t.Errorf("header % x", b[:4])
	}
	var codes []byte
	for at := 4; at < len(b); at += 2 + int(b[at+1]) {
		codes = append(codes, b[at])
	}
	if !bytes.Equal(codes, []byte{0x01, 0x08, 0x0a, 0x1c}) {
		t.Errorf("pages % x", codes)
	}
	b = r.good(r.a, "5a 00 08 00 00 00 00 00 ff 00", nil, 255)
	if int(binary.BigEndian.Uint16(b)) != len(b)-2 || b[7] != 8 || b[18]&4 == 0 {
		t.Errorf("caching page % x", b)
	}
	if b = r.good(r.a, "1a 08 4a 00 ff 00", nil, 255); b[6] != dSense || b[8] != swProtect {
		t.Errorf("changeable values % x", b)
	}
	r.bad(r.a, "1a 08 ca 00 ff 00", nil, 255, IllegalRequest, scsi.SavingNotSupported)
	r.bad(r.a, "1a 08 02 00 ff 00", nil, 255, IllegalRequest, scsi.InvalidFieldInCDB)
	r.bad(r.a, "1a 08 0a 01 ff 00", nil, 255, IllegalRequest, scsi.InvalidFieldInCDB)
}

// SPC-4 §6.9: SWP and D_SENSE can be changed, and other initiators hear of it. A list
// with a mistake changes nothing.
func TestModeSelect(t *testing.T) {
	r := newRig(t)
	page := r.good(r.a, "1a 08 0a 00 ff 00", nil, 255)
	page[0] = 0
	page[8] |= swProtect
	r.good(r.a, "15 10 00 00 10 00", page, 0)
	r.bad(r.b, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.ModeParametersChanged)
	r.bad(r.a, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0, DataProtect, scsi.SoftwareWriteProtected)
	r.good(r.a, cdb10(0x28, 0, 0, 1), nil, 512)
	if b := r.good(r.a, "1a 08 0a 00 ff 00", nil, 255); b[2]&0x80 == 0 {
		t.Error("the header does not say that the medium is write protected")
	}
	page[8] &^= swProtect
	page[6] |= dSense
	r.good(r.a, "15 10 00 00 10 00", page, 0)
	if s := r.unit.AppendSense(nil, Sense{Key: 5, Code: 0x2400}); s[0] != 0x72 {
		t.Errorf("sense data % x with D_SENSE", s)
	}
	for i, wrong := range []func([]byte){
		func(b []byte) { b[4] = 0x3e },  // no such page
		func(b []byte) { b[5] = 9 },     // wrong length
		func(b []byte) { b[7] ^= 0x01 }, // cannot be changed
		func(b []byte) { b[3] = 4 },     // block descriptor of 4 octets
	} {
		bad := bytes.Clone(page)
		bad[6] &^= dSense
		wrong(bad)
		r.bad(r.a, "15 10 00 00 10 00", bad, 0, IllegalRequest, scsi.InvalidFieldInParameterList)
		if !r.unit.descriptors.Load() {
			t.Errorf("mistake %d: the page was changed", i)
		}
	}
	r.bad(r.a, "15 10 00 00 06 00", page[:6], 0, IllegalRequest, scsi.ParameterListLengthError)
	r.bad(r.a, "15 11 00 00 10 00", page, 0, IllegalRequest, scsi.InvalidFieldInCDB)
	r.good(r.a, "15 10 00 00 00 00", nil, 0)
}

// SBC-3 §5.5: a backend without Mapped has all blocks mapped.
func TestGetLBAStatus(t *testing.T) {
	r := newRig(t)
	const cdb = "9e 12 00 00 00 00 00 00 00 05 00 00 00 40 00 00"
	if b := r.good(r.a, cdb, nil, 64); !bytes.Equal(b, octets(t, "00000014 00000000 0000000000000005 000003fb 00 000000")) {
		t.Errorf("% x", b)
	}
	r = newRig(t, func(c *Config) { c.Backend = holes{c.Backend} })
	want := "00000034 00000000 0000000000000005 00000003 00 000000 0000000000000008 00000008 01 000000 0000000000000010 00000008 00 000000"
	if b := r.good(r.a, cdb, nil, 64); !bytes.Equal(b, octets(t, want)) {
		t.Errorf("% x", b)
	}
}

// holes has storage for every second 4096 octets.
type holes struct{ Backend }

func (holes) Mapped(off int64) (bool, int64) { return off>>12&1 == 0, 4096 - off&4095 }

// SPC-4 §4.5: both formats of sense data.
func TestSense(t *testing.T) {
	s := Sense{Key: IllegalRequest, Code: scsi.InvalidFieldInCDB, Info: 0x11223344, HasInfo: true, Field: 3}
	if b := s.appendFixed(nil); !bytes.Equal(b, octets(t, "f0 00 05 11223344 0a 00000000 2400 00 c0 0002")) {
		t.Errorf("fixed % x", b)
	}
	if b := s.appendDescriptor(nil); !bytes.Equal(b, octets(t, "72 05 2400 000000 14 00 0a 80 00 0000000011223344 02 06 0000 c00002 00")) {
		t.Errorf("descriptors % x", b)
	}
	s.Info = 1 << 32 // does not fit into the fixed format
	if b := s.appendFixed(nil); b[0] != 0x70 {
		t.Errorf("fixed % x", b)
	}
}

// New says everything that is wrong.
func TestConfig(t *testing.T) {
	_, err := New(Config{Backend: newRAM(100), BlockSize: 1000, Serial: strings.Repeat("x", 99), Vendor: "\n", MaxTransfer: 5, PhysicalExp: 16, State: []byte("{")})
	for _, want := range []string{"block size 1000", "serial number", "vendor", "longest transfer", "2^16", "saved reservations"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := New(Config{Backend: newRAM(100)}); err == nil || !strings.Contains(err.Error(), "less than one block") {
		t.Errorf("a small backend: %v", err)
	}
}
