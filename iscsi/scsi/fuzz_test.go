package scsi_test

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// FuzzParse: no answer of a target makes a parser panic or read beyond the octets, and
// sense data that was parsed and made again is the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"f0 00 03 00001234 0a 00000000 1100 00 000000", "72 05 2400 000000 08  02 06 0000 c0 0002 00",
		"000006025bb800024c494f2d4f52472052414d4449534b2d4d43502020202020342e3020", "00830018 5394 0004 00000001 0203 0008 6001405000000000 0100",
		"610010000000020e8080000a000000000000000000000812140000000000", "0000001c 80 0f 0001 00000002 00000001", "00000018 00000000 4001000000000000", "000300061201ffffff07",
		"f2303030 30303030 00 0c 30 303030303030303030303030", // INFORMATION that is not valid
	} {
		f.Add(octets(f, text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := scsi.ParseSense(b); err == nil {
			if again, err := scsi.ParseSense(s.AppendDescriptor(nil)); err != nil || again != s {
				t.Fatalf("%x: %+v became %+v, %v", b, s, again, err)
			}
			_ = s.String()
		}
		_, _ = scsi.ParseInquiry(b)
		for _, page := range []uint8{0, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2} {
			readPage(page, b)
		}
		_, _ = scsi.ParseCapacity10(b)
		if c, err := scsi.ParseCapacity16(b); err == nil && c.Size() <= 0 {
			t.Fatalf("%x: size %d", b, c.Size())
		}
		if luns, missing, err := scsi.ParseLUNs(b); err == nil && (missing < 0 || 8*len(luns) > len(b)) {
			t.Fatalf("%x: %d LUNs, %d missing", b, len(luns), missing)
		}
		_, _ = scsi.ParseLBAStatus(b)
		_, _ = scsi.ParseUnmap(b)
		if m, err := scsi.ParseMode6(b); err == nil {
			_, _ = m.WriteCache()
			_ = m.DescriptorSense()
		}
		_, _ = scsi.ParseMode10(b)
		_, _, _ = scsi.ParseKeys(b)
		_, _ = scsi.ParseReservation(b)
		_, _ = scsi.ParsePortGroups(b)
		_, _ = scsi.ParseSupport(b)
		if len(b) >= 16 {
			c := scsi.CDB(b)
			_ = c.String()
			_, _ = c.Length(512)
		}
	})
}

func readPage(page uint8, b []byte) {
	switch page {
	case scsi.PageSupported:
		_, _ = scsi.ParseSupported(b)
	case scsi.PageSerial:
		_, _ = scsi.ParseSerial(b)
	case scsi.PageIdentification:
		all, _ := scsi.ParseIdentification(b)
		_, _ = scsi.UnitName(all)
	case scsi.PageExtended:
		_, _ = scsi.ParseExtended(b)
	case scsi.PageLimits:
		_, _ = scsi.ParseLimits(b)
	case scsi.PageCharacteristics:
		_, _ = scsi.ParseCharacteristics(b)
	case scsi.PageProvisioning:
		_, _ = scsi.ParseProvisioning(b)
	}
}
