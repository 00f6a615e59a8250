package scsi_test

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// TestCommands has the octets of each command from SPC-4 §6 and SBC-3 §5, and what the
// table says of the command: length of the data with blocks of 512 octets, whether a
// repetition is harmless.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		got    scsi.CDB
		want   string
		text   string
		length int
		again  bool
	}{
		{scsi.TestUnitReady(), "00", "TEST UNIT READY", 0, true},
		{scsi.RequestSense(252), "03 00 00 00 fc", "REQUEST SENSE", 252, false},
		{scsi.StandardInquiry(0x1ff), "12 00 00 01ff", "INQUIRY", 0x1ff, true},
		{scsi.VPDInquiry(scsi.PageLimits, 255), "12 01 b0 00ff", "INQUIRY", 255, true},
		{scsi.ReportLUNs(scsi.SelectAll, 4096), "a0 00 02 000000 00001000", "REPORT LUNS", 4096, true},
		{scsi.ModeSense6(scsi.ModeCaching, 0, 64), "1a 08 08 00 40", "MODE SENSE(6)", 64, true},
		{scsi.ModeSense10(scsi.ModeControl, 1, 512), "5a 08 0a 01 000000 0200", "MODE SENSE(10)", 512, true},
		{scsi.ModeSelect10(24, true), "55 11 0000000000 0018", "MODE SELECT(10)", 24, false},
		{scsi.ReadCapacity10(), "25", "READ CAPACITY(10)", 8, true},
		{scsi.ReadCapacity16(), "9e 10 0000000000000000 00000020", "READ CAPACITY(16)", 32, true},
		{scsi.Read(0x12345678, 0xffff, scsi.FUA), "28 08 12345678 00 ffff", "READ(10) lba 305419896 blocks 65535", 0xffff * 512, true},
		{scsi.Read(1<<32, 8, 0), "88 00 0000000100000000 00000008", "READ(16) lba 4294967296 blocks 8", 4096, true},
		{scsi.Read(0, 1<<16, scsi.DPO), "88 10 0000000000000000 00010000", "READ(16) lba 0 blocks 65536", 32 << 20, true},
		{scsi.Write(8, 192, scsi.FUA), "2a 08 00000008 00 00c0", "WRITE(10) lba 8 blocks 192", 96 << 10, true},
		{scsi.Write(1<<40, 1, 0), "8a 00 0000010000000000 00000001", "WRITE(16) lba 1099511627776 blocks 1", 512, true},
		{scsi.Verify(1, 2, scsi.VerifyMedium), "2f 00 00000001 00 0002", "VERIFY(10) lba 1 blocks 2", 0, true},
		{scsi.Verify(1, 2, scsi.VerifyAll), "2f 02 00000001 00 0002", "VERIFY(10) lba 1 blocks 2", 1024, true},
		{scsi.Verify(1<<32, 2, scsi.VerifyOne), "8f 06 0000000100000000 00000002", "VERIFY(16) lba 4294967296 blocks 2", 512, true},
		{scsi.WriteAndVerify(1, 2, scsi.VerifyAll), "2e 02 00000001 00 0002", "WRITE AND VERIFY(10) lba 1 blocks 2", 1024, true},
		{scsi.SynchronizeCache(0, 0), "35", "SYNCHRONIZE CACHE(10) lba 0 blocks 0", 0, true},
		{scsi.PreFetch(1<<32, 4), "90 00 0000000100000000 00000004", "PRE-FETCH(16) lba 4294967296 blocks 4", 0, true},
		{scsi.WriteSame(1, 2, scsi.SameUnmap), "41 08 00000001 00 0002", "WRITE SAME(10) lba 1 blocks 2", 512, true},
		{scsi.WriteSame(1, 2, scsi.SameNoData), "93 01 0000000000000001 00000002", "WRITE SAME(16) lba 1 blocks 2", 0, true},
		{scsi.WriteSame(1<<32, 2, 0), "93 00 0000000100000000 00000002", "WRITE SAME(16) lba 4294967296 blocks 2", 512, true},
		{scsi.Unmap(24), "42 0000000000 00 0018", "UNMAP", 24, true},
		{scsi.GetLBAStatus(9, 24), "9e 12 0000000000000009 00000018", "GET LBA STATUS", 24, true},
		{scsi.CompareAndWrite(9, 2, scsi.FUA), "89 08 0000000000000009 00000002", "COMPARE AND WRITE lba 9 blocks 2", 2048, false},
		{scsi.ORWrite(9, 2, 0), "8b 00 0000000000000009 00000002", "ORWRITE(16) lba 9 blocks 2", 1024, false},
		{scsi.WriteAtomic(9, 2, scsi.FUA), "9c 08 0000000000000009 0000 0002", "WRITE ATOMIC(16) lba 9 blocks 2", 1024, true},
		{scsi.StartStop(true, true), "1b 00 00 00 03", "START STOP UNIT", 0, false},
		{scsi.PersistentReserveIn(scsi.ReadReservation, 24), "5e 01 0000000000 0018", "PERSISTENT RESERVE IN, READ RESERVATION", 24, true},
		{scsi.PersistentReserveOut(scsi.Preempt, scsi.ExclusiveAccess), "5f 04 03 0000 00000018", "PERSISTENT RESERVE OUT, PREEMPT", 24, false},
		{scsi.Reserve6(), "16", "RESERVE(6)", 0, false},
		{scsi.Release6(), "17", "RELEASE(6)", 0, false},
		{scsi.ReportTargetPortGroups(512), "a3 0a 00000000 00000200", "REPORT TARGET PORT GROUPS", 512, true},
		{scsi.ReportSupportedOpcode(0x12, 0, false, 20), "a3 0c 01 12 0000 00000014", "REPORT SUPPORTED OPERATION CODES", 20, true},
		{scsi.ReportSupportedOpcode(0x9e, 0x10, true, 20), "a3 0c 02 9e 0010 00000014", "REPORT SUPPORTED OPERATION CODES", 20, true},
		{scsi.CDB{0x08, 0x1f, 0xff, 0xff, 0}, "08 1f ffff 00", "READ(6) lba 2097151 blocks 256", 128 << 10, true},
		{scsi.CDB{0x0a, 0xff, 0, 1, 2}, "0a ff 0001 02", "WRITE(6) lba 2031617 blocks 2", 1024, true},
	} {
		want := octets(t, c.want)
		if want = append(want, make([]byte, 16-len(want))...); !bytes.Equal(c.got[:], want) {
			t.Errorf("%s: %x, want %x", c.text, c.got, want)
		}
		if got := c.got.String(); got != c.text {
			t.Errorf("%x is %q, want %q", c.got, got, c.text)
		}
		if n, ok := c.got.Length(512); !ok || n != uint64(c.length) {
			t.Errorf("%s: length %d, %v, want %d", c.text, n, ok, c.length)
		}
		if row := c.got.Op(); row.Repeatable != c.again {
			t.Errorf("%s: repeatable %v", c.text, row.Repeatable)
		}
	}
}

// TestRows checks each operation code: the length of the CDB follows from its group
// (SPC-4 §4.2.5.1), and a command with data tells the length, but for FORMAT UNIT.
func TestRows(t *testing.T) {
	groups := [8]int{6, 10, 10, 0, 16, 12, 0, 0}
	rows := 0
	for op := range 256 {
		for sa := range 32 {
			c := scsi.CDB{0: uint8(op), 1: uint8(sa)}
			row := c.Op()
			if row.Name == "" {
				continue
			}
			rows++
			if row.Len != groups[op>>5] {
				t.Errorf("%s: %d octets, want %d", row.Name, row.Len, groups[op>>5])
			}
			if _, ok := c.Length(512); !ok && row.Name != "FORMAT UNIT" {
				t.Errorf("%s does not tell its length", row.Name)
			}
		}
	}
	if rows < 40*32 {
		t.Errorf("only %d rows", rows)
	}
	unknown := scsi.CDB{0xc1}
	if _, ok := unknown.Length(512); ok || unknown.String() != "command c1h" || unknown.Op().Repeatable {
		t.Errorf("%v is known", &unknown)
	}
}
