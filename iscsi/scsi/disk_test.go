package scsi_test

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// octets reads hexadecimal digits with spaces between them.
func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCapturedInquiry reads what tgtd and LIO said of their disks.
func TestCapturedInquiry(t *testing.T) { // SPC-4 §6.6.2
	all := answers(t)
	for _, c := range []struct {
		capture string
		lun     uint16
		want    scsi.Inquiry
	}{
		{"tgtd-digests", 1, scsi.Inquiry{Version: 5, CmdQueue: true, Vendor: "IET", Product: "VIRTUAL-DISK", Revision: "0001", Standards: []uint16{0x04c0, 0x0960, 0x0300}}},
		{"oi-tgtd-digests", 0, scsi.Inquiry{Type: scsi.ArrayDevice, Version: 5, CmdQueue: true, Vendor: "IET", Product: "Controller", Revision: "0001"}},
		{"oi-lio-digests", 0, scsi.Inquiry{Version: 6, TPGS: 3, ThirdCopy: true, CmdQueue: true, Vendor: "LIO-ORG", Product: "RAMDISK-MCP", Revision: "4.0"}},
		{"oi-lio-digests", 1, scsi.Inquiry{Version: 6, TPGS: 3, ThirdCopy: true, CmdQueue: true, Vendor: "LIO-ORG", Product: "FILEIO", Revision: "4.0"}},
	} {
		a := find(t, all, c.capture, scsi.LUNOf(c.lun), "\x12\x00")
		got, err := scsi.ParseInquiry(a.data)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s LUN %d: %+v, %v, want %+v", c.capture, c.lun, got, err, c.want)
		}
	}
	if _, err := scsi.ParseInquiry(make([]byte, 35)); err == nil || err.Error() != "scsi: standard INQUIRY data of 35 octets: at least 36 are needed" {
		t.Errorf("35 octets: %v", err)
	}
	if q, _ := scsi.ParseInquiry(append([]byte{0x7f, 0x80, 6, 2, 31, 0x01}, make([]byte, 30)...)); q.Qualifier != scsi.NoUnit || q.Type != scsi.UnknownDevice || !q.Removable || !q.Protect {
		t.Errorf("no unit: %+v", q)
	}
}

// TestCapturedPages reads the pages of vital product data that QEMU and Linux asked for.
func TestCapturedPages(t *testing.T) { // SPC-4 §7.8, SBC-3 §6.6
	all := answers(t)
	one := scsi.LUNOf(1)
	ids, err := scsi.ParseIdentification(find(t, all, "tgtd-qemu-rw", one, "\x12\x01\x83").data)
	if err != nil || len(ids) != 2 { // the third is cut off by the allocation length
		t.Fatalf("%d designators, %v", len(ids), err)
	}
	if d := ids[0]; d.Type != scsi.DesignatorT10 || d.Association != scsi.OfUnit || d.Binary || !strings.HasPrefix(d.String(), "IET     00010001") {
		t.Errorf("T10 designator %+v", d)
	}
	if d, ok := scsi.UnitName(ids); !ok || d.Type != scsi.DesignatorNAA || d.String() != "3000000100000001" {
		t.Errorf("name of the unit %v, %v", d, ok)
	}
	limits, err := scsi.ParseLimits(find(t, all, "tgtd-qemu-rw", one, "\x12\x01\xb0").data)
	if err != nil || limits != (scsi.Limits{MaxCompareAndWrite: 128}) {
		t.Errorf("limits %+v, %v", limits, err)
	}
	thin, err := scsi.ParseProvisioning(find(t, all, "tgtd-qemu-rw", one, "\x12\x01\xb2").data)
	if err != nil || thin != (scsi.Provisioning{}) {
		t.Errorf("provisioning %+v, %v", thin, err)
	}
	pages, err := scsi.ParseSupported(find(t, all, "oi-lio-digests", scsi.LUNOf(0), "\x12\x01\x00").data)
	if err != nil || len(pages) != 0 { // only the header fitted into 4 octets
		t.Errorf("pages %x, %v", pages, err)
	}
	if _, err := scsi.VPD(scsi.PageSerial, []byte{0, 0x83, 0, 0}); err == nil || err.Error() != "scsi: VPD page 83h instead of 80h" {
		t.Errorf("another page: %v", err)
	}
}

func TestPages(t *testing.T) {
	limits, err := scsi.ParseLimits(octets(t, "00b0003c 01ff0008 00004000 00000800 00001000 00100000 00000080 00000008 80000003 0000000000100000 00004000 00000002 00000001"))
	if want := (scsi.Limits{NoZeroWriteSame: true, MaxCompareAndWrite: 255, OptimalGranularity: 8, MaxTransfer: 0x4000, OptimalTransfer: 0x800, MaxPreFetch: 0x1000,
		MaxUnmap: 1 << 20, MaxUnmapExtents: 128, UnmapGranularity: 8, UnmapAlignment: 3, HasUnmapAlignment: true,
		MaxWriteSame: 1 << 20, MaxAtomic: 0x4000, AtomicAlignment: 2, AtomicGranularity: 1}); err != nil || limits != want {
		t.Errorf("limits %+v, %v, want %+v", limits, err, want)
	}
	old, err := scsi.ParseLimits(octets(t, "00b0000c 00000008 00000100 00000080")) // SBC-2 has no more
	if want := (scsi.Limits{OptimalGranularity: 8, MaxTransfer: 256, OptimalTransfer: 128}); err != nil || old != want {
		t.Errorf("old limits %+v, %v", old, err)
	}
	c, err := scsi.ParseCharacteristics(octets(t, "00b1003c 0001000302"))
	if want := (scsi.Characteristics{RotationRate: 1, FormFactor: 3, FUASync: true}); err != nil || c != want {
		t.Errorf("characteristics %+v, %v", c, err)
	}
	p, err := scsi.ParseProvisioning(octets(t, "00b20004 09e60200"))
	if want := (scsi.Provisioning{Threshold: 9, Unmap: true, WriteSame16: true, WriteSame10: true, ReadsZero: true, Anchors: true, Type: 2}); err != nil || p != want {
		t.Errorf("provisioning %+v, %v", p, err)
	}
	e, err := scsi.ParseExtended(octets(t, "0086003c 000503"))
	if want := (scsi.Extended{HeadOfQueue: true, Simple: true, VolatileCache: true, NonVolatileCache: true}); err != nil || e != want {
		t.Errorf("extended %+v, %v", e, err)
	}
	if s, err := scsi.ParseSerial(octets(t, "00800008 2020beaf31322020")); err != nil || s != "  \xbe\xaf12" {
		t.Errorf("serial %q, %v", s, err)
	}
	ids, err := scsi.ParseIdentification(octets(t, "00830018 5394 0004 00000001 0203 0008 6001405000000000 0100"))
	if err != nil || len(ids) != 2 || !ids[0].HasProtocol || ids[0].Protocol != 5 || ids[0].Association != scsi.OfPort || ids[0].Type != scsi.DesignatorPort || ids[1].HasProtocol {
		t.Errorf("designators %+v, %v", ids, err)
	}
	if _, ok := scsi.UnitName(ids[:1]); ok {
		t.Error("a port's designator names the unit")
	}
}

// TestCapturedCapacity: SBC-3 §5.16.2.
func TestCapturedCapacity(t *testing.T) {
	all := answers(t)
	for _, c := range []struct {
		capture string
		lun     uint16
		want    scsi.Capacity
		size    int64
	}{
		{"tgtd-digests", 1, scsi.Capacity{Blocks: 1 << 21, BlockSize: 512, PhysicalExponent: 3}, 1 << 30},
		{"oi-lio-digests", 0, scsi.Capacity{Blocks: 1 << 17, BlockSize: 512}, 64 << 20},
		{"oi-lio-digests", 1, scsi.Capacity{Blocks: 1 << 18, BlockSize: 512, Thin: true}, 128 << 20},
	} {
		got, err := scsi.ParseCapacity16(find(t, all, c.capture, scsi.LUNOf(c.lun), "\x9e\x10").data)
		if err != nil || got != c.want || got.Size() != c.size {
			t.Errorf("%s LUN %d: %+v, %d octets, %v", c.capture, c.lun, got, got.Size(), err)
		}
	}
}

func TestCapacity(t *testing.T) { // SBC-3 §5.15.2, §5.16.2
	if c, err := scsi.ParseCapacity10(octets(t, "0001ffff 00001000")); err != nil || c.Blocks != 1<<17 || c.Size() != 512<<20 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := scsi.ParseCapacity10(octets(t, "ffffffff 00000200")); err != scsi.ErrTooBig {
		t.Errorf("2^32 blocks: %v", err)
	}
	c, err := scsi.ParseCapacity16(octets(t, "00000000ffffffff 00000200 01 03 c007"))
	if want := (scsi.Capacity{Blocks: 1 << 32, BlockSize: 512, PhysicalExponent: 3, LowestAligned: 7, Thin: true, ReadsZero: true, Protected: true}); err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{"ffffffffffffffff 00000200", "0000000000000000 00000000", "003fffffffffffff 00000200"} {
		if c, err := scsi.ParseCapacity16(octets(t, bad)); err != scsi.ErrCapacity {
			t.Errorf("%s: %+v, %v", bad, c, err)
		}
	}
	for n := range 8 {
		if _, err := scsi.ParseCapacity10(make([]byte, n)); err == nil {
			t.Errorf("%d octets are a capacity", n)
		}
	}
}

func TestCapturedLUNs(t *testing.T) { // SPC-4 §6.33
	all := answers(t)
	for _, capture := range []string{"oi-lio-digests", "oi-tgtd-digests"} {
		luns, missing, err := scsi.ParseLUNs(find(t, all, capture, 0, "\xa0").data)
		if err != nil || missing != 0 || !reflect.DeepEqual(luns, []scsi.LUN{scsi.LUNOf(0), scsi.LUNOf(1)}) {
			t.Errorf("%s: %v, %d missing, %v", capture, luns, missing, err)
		}
	}
	luns, missing, err := scsi.ParseLUNs(octets(t, "00000018 00000000 4001000000000000"))
	if err != nil || missing != 2 || len(luns) != 1 || luns[0].String() != "1" {
		t.Errorf("cut: %v, %d missing, %v", luns, missing, err)
	}
}

func TestLUN(t *testing.T) { // SAM-5 §4.7.7
	for n, want := range map[uint16]scsi.LUN{0: 0, 1: 1 << 48, 255: 255 << 48, 256: 0x4100 << 48, 0x3fff: 0x7fff << 48} {
		l := scsi.LUNOf(n)
		if got, ok := l.Number(); l != want || got != n || !ok {
			t.Errorf("LUN %d is %#x, and back %d, %v", n, uint64(l), got, ok)
		}
	}
	for l, want := range map[scsi.LUN]string{0x4001 << 48: "1", 0x0100 << 48: "0x0100000000000000", 0xc101 << 48: "0xc101000000000000", 1<<48 | 1: "0x0001000000000001", 0x8000 << 48: "0x8000000000000000"} {
		if l.String() != want {
			t.Errorf("%#x is %s, want %s", uint64(l), l, want)
		}
	}
	if !scsi.LUN(0xc101<<48).WellKnown() || scsi.LUN(0x4101<<48).WellKnown() || scsi.LUN(0xd201<<48).WellKnown() {
		t.Error("well known logical units")
	}
}

func TestCapturedMode(t *testing.T) { // SPC-4 §7.5
	all := answers(t)
	m, err := scsi.ParseMode6(find(t, all, "tgtd-qemu-rw", scsi.LUNOf(1), "\x1a\x08\x3f").data)
	if err != nil {
		t.Fatal(err)
	}
	var codes []uint8 // tgtd has an empty page 0, and a subpage of the control page
	for _, p := range m.Pages {
		codes = append(codes, p.Code)
	}
	if cache, known := m.WriteCache(); !cache || !known || m.WriteProtected || !m.ForceAccess || m.DescriptorSense() || !reflect.DeepEqual(codes, []uint8{0x00, 0x02, 0x08, 0x0a, 0x0a, 0x1c}) {
		t.Errorf("cache %v %v, %+v", cache, known, m)
	}
	cut, err := scsi.ParseMode6(find(t, all, "oi-lio-digests", scsi.LUNOf(0), "\x1a").data)
	if _, known := cut.WriteCache(); err != nil || len(cut.Pages) != 0 || known {
		t.Errorf("header only: %+v, %v", cut, err)
	}
	long, err := scsi.ParseMode10(octets(t, "001e 00 90 00 00 0008 0000000000000200 4a 01 0004 11223344 0a 02 0600 88"))
	if err != nil || !long.WriteProtected || !long.ForceAccess || !long.DescriptorSense() || len(long.Pages) != 2 {
		t.Fatalf("%+v, %v", long, err)
	}
	if v, ok := long.Page(scsi.ModeControl, 1); !ok || hex.EncodeToString(v) != "11223344" {
		t.Errorf("subpage %x, %v", v, ok)
	}
}

func TestUnmap(t *testing.T) { // SBC-3 §5.25.2
	extents := []scsi.Extent{{LBA: 1, Blocks: 2}, {LBA: 1 << 40, Blocks: 1<<32 - 1}}
	b := scsi.AppendUnmap(nil, extents)
	want := "0026 0020 00000000 0000000000000001 00000002 00000000 0000010000000000 ffffffff 00000000"
	if !reflect.DeepEqual(b, octets(t, want)) || len(b) != scsi.UnmapLen(2) {
		t.Errorf("%x, want %s", b, want)
	}
	if got, err := scsi.ParseUnmap(b); err != nil || !reflect.DeepEqual(got, extents) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := scsi.ParseUnmap(b[:len(b)-1]); err != nil || len(got) != 1 {
		t.Errorf("cut: %v, %v", got, err)
	}
	if most := scsi.AppendUnmap(nil, make([]scsi.Extent, scsi.MaxUnmapExtents)); len(most) > 1<<16-1 || scsi.UnmapLen(scsi.MaxUnmapExtents+1) <= 1<<16-1 {
		t.Errorf("%d octets", len(most))
	}
}

func TestLBAStatus(t *testing.T) { // SBC-3 §5.4.3
	b := octets(t, "00000024 00000000 0000000000000000 00000008 00 000000 0000000000000008 00000010 01 000000")
	want := []scsi.LBAStatus{{LBA: 0, Blocks: 8}, {LBA: 8, Blocks: 16, State: scsi.Deallocated}}
	if got, err := scsi.ParseLBAStatus(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := scsi.ParseLBAStatus(b[:39]); err != nil || len(got) != 1 {
		t.Errorf("cut: %v, %v", got, err)
	}
}

func TestReservations(t *testing.T) { // SPC-4 §6.15, §6.16
	b := scsi.PersistOut{Key: 1, NewKey: 0xabcdef, KeepsPR: true, AllPorts: true}.Append(nil)
	if want := octets(t, "0000000000000001 0000000000abcdef 00000000 05 000000"); !reflect.DeepEqual(b, want) || len(b) != scsi.PersistOutLen {
		t.Errorf("%x", b)
	}
	generation, keys, err := scsi.ParseKeys(octets(t, "00000007 00000010 0000000000000001 0000000000000002 ffff"))
	if err != nil || generation != 7 || !reflect.DeepEqual(keys, []uint64{1, 2}) {
		t.Errorf("generation %d, keys %v, %v", generation, keys, err)
	}
	r, err := scsi.ParseReservation(octets(t, "00000007 00000010 0000000000000001 00000000 00 05 0000"))
	if want := (scsi.Reservation{Generation: 7, Held: true, Key: 1, Type: scsi.WriteExclusiveRegistrants}); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := scsi.ParseReservation(octets(t, "00000007 00000000")); err != nil || r.Held || r.Generation != 7 {
		t.Errorf("no reservation: %+v, %v", r, err)
	}
}

func TestPortGroups(t *testing.T) { // SPC-4 §6.37
	got, err := scsi.ParsePortGroups(octets(t, "0000001c 80 0f 0001 00000002 00000001 00000002 02 0f 0002 00000001 00000003"))
	want := []scsi.PortGroup{{Number: 1, Preferred: true, Ports: []uint16{1, 2}}, {Number: 2, State: scsi.Standby, Ports: []uint16{3}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := scsi.ParsePortGroups(octets(t, "0000001c 80 0f 0001 00000002 00000001")); err != nil || len(got) != 0 {
		t.Errorf("cut: %+v, %v", got, err)
	}
	if scsi.Optimized.String() != "active/optimized" || scsi.AccessState(9).String() != "access state 0x9" {
		t.Error("names of states")
	}
}

func TestSupport(t *testing.T) { // SPC-4 §6.35.3
	a := find(t, answers(t), "oi-tgtd-digests", scsi.LUNOf(1), "\xa3\x0c")
	got, err := scsi.ParseSupport(a.data)
	if err != nil || !got.Supported || hex.EncodeToString(got.Usage) != "1201ffffff07" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := scsi.ParseSupport([]byte{0, 1, 0, 0}); err != nil || got.Supported {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestResidual(t *testing.T) { // RFC 7143 §11.4.5
	for _, c := range []struct {
		spdtl       uint64
		edtl        uint32
		over, under uint32
	}{{4096, 4096, 0, 0}, {4096, 512, 3584, 0}, {512, 4096, 0, 3584}, {0, 1<<32 - 1, 0, 1<<32 - 1}, {1 << 40, 0, 1<<32 - 1, 0}} {
		over, under := scsi.Residual(c.spdtl, c.edtl)
		if over != c.over || under != c.under {
			t.Errorf("%+v: %d, %d", c, over, under)
		}
		if n, ok := scsi.Transferred(c.edtl, over, under); !ok || uint64(n) != min(c.spdtl, uint64(c.edtl)) {
			t.Errorf("%+v: %d transferred, %v", c, n, ok)
		}
	}
	if _, ok := scsi.Transferred(512, 1, 1); ok {
		t.Error("overflow and underflow at once")
	}
	if _, ok := scsi.Transferred(512, 0, 513); ok {
		t.Error("fewer octets than none")
	}
}
