package unit

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// SBC-3 §5.10 to §5.13 and §5.32 to §5.35.
func TestReadWrite(t *testing.T) {
	for _, c := range []struct{ write, read string }{
		{"0a 00 00 07 02 00", "08 00 00 07 02 00"},
		{cdb10(0x2a, 0, 7, 2), cdb10(0x28, 0, 7, 2)},
		{"aa 00 00 00 00 07 00 00 00 02 00 00", "a8 00 00 00 00 07 00 00 00 02 00 00"},
		{cdb16(0x8a, 0, 7, 2), cdb16(0x88, 0, 7, 2)},
		{"9c 00 00 00 00 00 00 00 00 07 00 00 00 02 00 00", cdb16(0x88, 0, 7, 2)},
	} {
		r := newRig(t)
		want := pattern(3, 1024)
		r.good(r.a, c.write, want, 0)
		if got := r.good(r.b, c.read, nil, 1024); !bytes.Equal(got, want) {
			t.Errorf("%s, %s: other octets", c.write, c.read)
		}
		if !bytes.Equal(r.ram.medium[7*512:9*512], want) || !allZero(r.ram.medium[:7*512]) || !allZero(r.ram.medium[9*512:]) {
			t.Errorf("%s wrote to other blocks", c.write)
		}
	}
}

// SBC-3 §4.5: blocks that do not exist, also when the sum of LBA and length wraps.
func TestOutOfRange(t *testing.T) {
	r := newRig(t)
	for _, cdb := range []string{
		cdb10(0x28, 0, rigBlocks, 1), cdb10(0x28, 0, rigBlocks-1, 2), cdb10(0x28, 0, rigBlocks+1, 0), cdb10(0x28, 0, 0xffffffff, 1),
		cdb16(0x88, 0, 1<<63, 1), cdb16(0x88, 0, 1<<64-1, 1), cdb16(0x88, 0, 1<<64-1, 0xffffffff), cdb16(0x88, 0, 1<<55, 0),
		cdb16(0x8f, 0, 1<<64-1, 2), cdb16(0x90, 0, rigBlocks+1, 0), cdb16(0x91, 0, rigBlocks, 1),
		cdb16(0x9e, 0x12, rigBlocks, 64),
	} {
		r.bad(r.a, cdb, nil, 512, IllegalRequest, scsi.LBAOutOfRange)
	}
	for _, cdb := range []string{cdb10(0x2a, 0, rigBlocks, 1), cdb16(0x8a, 0, 1<<64-1, 1), cdb16(0x93, 0, 1<<64-1, 1)} {
		r.bad(r.a, cdb, make([]byte, 512), 0, IllegalRequest, scsi.LBAOutOfRange)
	}
	if s := r.bad(r.a, cdb10(0x28, 0, rigBlocks, 1), nil, 512, IllegalRequest, scsi.LBAOutOfRange).Sense; !s.HasInfo || s.Info != rigBlocks {
		t.Errorf("INFORMATION is %d", s.Info)
	}
	r.good(r.a, cdb10(0x28, 0, rigBlocks, 0), nil, 0)
}

// SBC-3 §6.6.4: no transfer is longer than MAXIMUM TRANSFER LENGTH.
func TestMaximumTransferLength(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxTransfer = 64 << 10 })
	r.good(r.a, cdb10(0x28, 0, 0, 128), nil, 64<<10)
	r.bad(r.a, cdb10(0x28, 0, 0, 129), nil, 66048, IllegalRequest, scsi.InvalidFieldInCDB)
	b := r.good(r.a, "12 01 b0 00 ff 00", nil, 255)
	if b[11] != 128 {
		t.Errorf("page B0h: % x", b[:12])
	}
}

// RFC 7143 §11.4.5: residual counts are exact. Of a write for which the initiator has too
// few octets, those are written that it has (FCP-4 §9.4.2, option a). A command that needs
// all of its octets fails, and changes nothing.
func TestResiduals(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		cdb         string
		edtl        uint32
		over, under uint32
		status      Status
	}{
		{cdb10(0x28, 0, 0, 1), 512, 0, 0, Good},
		{cdb10(0x28, 0, 0, 8), 512, 3584, 0, Good},
		{cdb10(0x28, 0, 0, 1), 4096, 0, 3584, Good},
		{cdb10(0x28, 0, 0, 1), 200, 312, 0, Good},
		{cdb10(0x28, 0, 0, 0), 512, 0, 512, Good},
		{"12 00 00 00 ff 00", 255, 0, 159, Good},
		{"12 00 00 00 08 00", 8, 0, 0, Good},
		{"00 00 00 00 00 00", 100, 0, 100, Good},
		{cdb10(0x2a, 0, 0, 1), 0, 512, 0, Good},
		{cdb10(0x2a, 0, 0, 1), 200, 312, 0, Good},
		{cdb10(0x2a, 0, 0, 2), 512, 512, 0, Good},
		{cdb10(0x2e, 0x02, 0, 2), 700, 324, 0, Good},
		{cdb10(0x2f, 0x02, 0, 2), 700, 324, 0, CheckCondition},
		{cdb16(0x8b, 0, 0, 1), 511, 1, 0, CheckCondition},
		{cdb10(0x2a, 0, 0, 1), 1024, 0, 512, Good},
		{cdb10(0x28, 0, 5000, 1), 512, 0, 512, CheckCondition},
		{cdb10(0x2a, 0, 5000, 1), 512, 0, 512, CheckCondition},
	} {
		clear(r.ram.medium)
		task := r.runEDTL(r.a, c.cdb, bytes.Repeat([]byte{1}, int(c.edtl)), c.edtl)
		over, under := task.Residual()
		if task.Status != c.status || over != c.over || under != c.under {
			t.Errorf("%s with EDTL %d: status %v, residual %d over, %d under, want %v, %d, %d", c.cdb, c.edtl, task.Status, over, under, c.status, c.over, c.under)
		}
		written := 0
		if want := min(c.edtl, task.Want); c.status == Good && task.Dir == DataOut {
			written = int(want)
		}
		if bytes.Count(r.ram.medium, []byte{1}) != written || !allZero(r.ram.medium[written:]) {
			t.Errorf("%s with EDTL %d has not written the first %d octets alone", c.cdb, c.edtl, written)
		}
	}
}

// SBC-3 §5.26: BYTCHK.
func TestVerify(t *testing.T) {
	r := newRig(t)
	want := pattern(1, 1024)
	copy(r.ram.medium[512:], want)
	other := bytes.Clone(want)
	other[700]++
	r.good(r.a, cdb10(0x2f, 0x02, 1, 2), want, 0)
	if s := r.bad(r.a, cdb10(0x2f, 0x02, 1, 2), other, 0, Miscompare, scsi.MiscompareDuringVerify).Sense; s.Info != 700 {
		t.Errorf("INFORMATION is %d", s.Info)
	}
	r.good(r.a, cdb10(0x2f, 0x00, 1, 2), nil, 0)
	r.bad(r.a, cdb10(0x2f, 0x04, 1, 2), nil, 0, IllegalRequest, scsi.InvalidFieldInCDB)
	r.good(r.a, cdb10(0x2f, 0x06, 100, 4), make([]byte, 512), 0)
	r.bad(r.a, cdb10(0x2f, 0x06, 0, 4), make([]byte, 512), 0, Miscompare, scsi.MiscompareDuringVerify)
	syncs := r.ram.syncs
	r.good(r.a, cdb10(0x2e, 0x02, 1, 2), want, 0)
	if r.ram.syncs == syncs {
		t.Error("WRITE AND VERIFY has not synchronized the backend")
	}
}

// SBC-3 §5.2: nothing is written unless all octets are equal.
func TestCompareAndWrite(t *testing.T) {
	for _, c := range []Backend{nil, plain{}} {
		r := newRig(t, func(conf *Config) {
			if c != nil {
				conf.Backend = plain{conf.Backend}
			}
		})
		const cdb = "89 00 00 00 00 00 00 00 00 05 00 00 00 01 00 00"
		old, next := make([]byte, 512), pattern(9, 512)
		r.good(r.a, cdb, append(old, next...), 0)
		if !bytes.Equal(r.ram.medium[5*512:6*512], next) {
			t.Error("has not written")
		}
		before := bytes.Clone(r.ram.medium)
		if s := r.bad(r.a, cdb, make([]byte, 1024), 0, Miscompare, scsi.MiscompareDuringVerify).Sense; s.Info != 0 {
			t.Errorf("INFORMATION is %d", s.Info)
		}
		if !bytes.Equal(before, r.ram.medium) {
			t.Error("has written in spite of a difference")
		}
		r.bad(r.a, cdb, make([]byte, 2048), 0, IllegalRequest, scsi.InvalidFieldInCDB)
		r.bad(r.a, cdb, make([]byte, 512), 0, IllegalRequest, scsi.InvalidFieldInInformationUnit)
	}
}

// SBC-3 §5.7.
func TestOrWrite(t *testing.T) {
	r := newRig(t)
	copy(r.ram.medium, bytes.Repeat([]byte{0x51}, 1024))
	r.good(r.a, cdb16(0x8b, 0, 0, 2), bytes.Repeat([]byte{0x0a}, 1024), 0)
	if !bytes.Equal(r.ram.medium[:1024], bytes.Repeat([]byte{0x5b}, 1024)) {
		t.Errorf("% x", r.ram.medium[:8])
	}
}

// SBC-3 §5.41, §5.42.
func TestWriteSame(t *testing.T) {
	for _, thin := range []bool{true, false} {
		r := newRig(t, func(c *Config) {
			if !thin {
				c.Backend = plain{c.Backend}
			}
		})
		block := pattern(2, 512)
		r.good(r.a, cdb16(0x93, 0, 1, 300), block, 0)
		if !bytes.Equal(r.ram.medium[512:301*512], bytes.Repeat(block, 300)) || !allZero(r.ram.medium[:512]) || !allZero(r.ram.medium[301*512:]) {
			t.Error("other octets")
		}
		r.good(r.a, cdb16(0x93, sameNoData, 2, 1), nil, 0)
		if !allZero(r.ram.medium[1024:1536]) {
			t.Error("NDOB has not written zeros")
		}
		r.bad(r.a, cdb10(0x41, 0, 0, 0), block, 0, IllegalRequest, scsi.InvalidFieldInCDB) // WSNZ
		r.bad(r.a, cdb10(0x41, 0, 0, 1), pattern(0, 1024), 0, IllegalRequest, scsi.InvalidFieldInInformationUnit)
		if thin {
			r.good(r.a, cdb10(0x41, sameUnmap, 1, 10), make([]byte, 512), 0)
			if !allZero(r.ram.medium[512 : 11*512]) {
				t.Error("unmapped blocks are not zero")
			}
		} else {
			r.bad(r.a, cdb10(0x41, sameUnmap, 1, 10), make([]byte, 512), 0, IllegalRequest, scsi.InvalidFieldInCDB)
		}
	}
}

// SBC-3 §5.25.
func TestUnmap(t *testing.T) {
	r := newRig(t)
	copy(r.ram.medium, bytes.Repeat([]byte{1}, len(r.ram.medium)))
	two := octets(t, "0026 0020 00000000 0000000000000003 00000002 00000000 0000000000000000 00000001 00000000")
	r.good(r.a, cdb10(0x42, 0, 0, uint16(len(two))), two, 0)
	if !allZero(r.ram.medium[:512]) || !allZero(r.ram.medium[3*512:5*512]) || r.ram.medium[512] != 1 || r.ram.medium[5*512] != 1 {
		t.Error("other blocks")
	}
	wrong := octets(t, "0026 0020 00000000 0000000000000009 00000002 00000000 00000000000003ff 00000002 00000000")
	r.bad(r.a, cdb10(0x42, 0, 0, uint16(len(wrong))), wrong, 0, IllegalRequest, scsi.LBAOutOfRange)
	if r.ram.medium[9*512] != 1 {
		t.Error("a block is unmapped although the list is wrong")
	}
	r.bad(r.a, cdb10(0x42, 0, 0, 7), make([]byte, 7), 0, IllegalRequest, scsi.ParameterListLengthError)
	r.good(r.a, cdb10(0x42, 0, 0, 0), nil, 0)
	r = newRig(t, func(c *Config) { c.Backend = plain{c.Backend} })
	r.bad(r.a, cdb10(0x42, 0, 0, 0), nil, 0, IllegalRequest, scsi.InvalidOperationCode)
}

// SBC-3 §5.19.
func TestSanitize(t *testing.T) {
	r := newRig(t)
	copy(r.ram.medium, bytes.Repeat([]byte{1}, len(r.ram.medium)))
	r.good(r.a, "48 02 00 00 00 00 00 00 00 00", nil, 0)
	if !allZero(r.ram.medium) {
		t.Error("octets are left")
	}
	list := octets(t, "82 00 00 02 aa 55")
	r.good(r.a, cdb10(0x48, 1, 0, 6), list, 0)
	if !bytes.Equal(r.ram.medium, bytes.Repeat([]byte{0x55, 0xaa}, len(r.ram.medium)/2)) {
		t.Errorf("after an inverted second pass: % x", r.ram.medium[:4])
	}
	r.bad(r.a, cdb10(0x48, 1, 0, 6), octets(t, "80 00 00 02 aa 55"), 0, IllegalRequest, scsi.InvalidFieldInParameterList)
	r.bad(r.a, cdb10(0x48, 1, 0, 4), make([]byte, 4), 0, IllegalRequest, scsi.InvalidFieldInCDB)
	r.ram.fail = errors.New("broken")
	r.unit.conf.Backend = plain{r.ram}
	r.bad(r.a, "48 02 00 00 00 00 00 00 00 00", nil, 0, MediumError, scsi.SanitizeFailed)
	r.ram.fail = nil
	r.bad(r.a, cdb10(0x28, 0, 0, 1), nil, 512, MediumError, scsi.SanitizeFailed)
	r.good(r.a, "48 1f 00 00 00 00 00 00 00 00", nil, 0)
	r.good(r.a, cdb10(0x28, 0, 0, 1), nil, 512)
}

// A backend's error is a medium error with the LBA (SBC-3 §4.18).
func TestBackendFails(t *testing.T) {
	r := newRig(t)
	r.ram.fail = errors.New("broken")
	if s := r.bad(r.a, cdb10(0x28, 0, 4, 1), nil, 512, MediumError, scsi.UnrecoveredReadError).Sense; s.Info != 4 {
		t.Errorf("INFORMATION is %d", s.Info)
	}
	r.bad(r.a, cdb10(0x2a, 0, 4, 1), make([]byte, 512), 0, MediumError, scsi.WriteError)
}

// FUA makes the write stable before the status (SBC-3 §4.15).
func TestForceUnitAccess(t *testing.T) {
	r := newRig(t)
	r.good(r.a, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
	if r.ram.syncs != 0 {
		t.Error("a write without FUA has synchronized the backend")
	}
	r.good(r.a, cdb10(0x2a, 0x08, 0, 1), make([]byte, 512), 0)
	if r.ram.syncs != 1 {
		t.Error("a write with FUA has not synchronized the backend")
	}
	r.good(r.a, cdb10(0x35, 0, 0, 0), nil, 0)
	if r.ram.syncs != 2 {
		t.Error("SYNCHRONIZE CACHE has not synchronized the backend")
	}
}

// Open lets reads and writes through without Begin as long as no condition stands
// against them.
func TestOpen(t *testing.T) {
	r := newRig(t)
	r.ram.lends = true
	open := func(n *Nexus, cdb string) bool {
		task := &Task{Nexus: n, EDTL: 512}
		copy(task.CDB[:], octets(t, cdb))
		return n.Open(task)
	}
	read, write := cdb10(0x28, 0, 0, 1), cdb10(0x2a, 0, 0, 1)
	check := func(when string, n *Nexus, wantRead, wantWrite bool) {
		t.Helper()
		if gotRead, gotWrite := open(n, read), open(n, write); gotRead != wantRead || gotWrite != wantWrite {
			t.Errorf("%s: read %v, write %v, want %v, %v", when, gotRead, gotWrite, wantRead, wantWrite)
		}
	}
	check("at first", r.a, true, true)
	r.good(r.b, "16 00 00 00 00 00", nil, 0)
	check("reserved by b", r.a, false, false)
	check("reserved by b", r.b, true, true)
	r.good(r.b, "17 00 00 00 00 00", nil, 0)
	check("released", r.a, true, true)
	r.a.Attend(scsi.ReportedLUNsChanged)
	check("unit attention", r.a, false, false)
	r.bad(r.a, "00 00 00 00 00 00", nil, 0, UnitAttention, scsi.ReportedLUNsChanged)
	check("after the unit attention", r.a, true, true)
	if open(r.a, cdb10(0x28, 0, rigBlocks, 1)) || open(r.a, cdb10(0x28, 0x20, 0, 1)) || open(r.a, cdb10(0x2a, 0, 0, 2)) {
		t.Error("Open let a wrong CDB through")
	}
	task := &Task{Nexus: r.a, EDTL: 1024}
	copy(task.CDB[:], octets(t, cdb10(0x2a, 0, 3, 2)))
	if !r.a.Open(task) {
		t.Fatal("refused")
	}
	lent := r.unit.Lend(task)
	if len(lent) != 1024 || &lent[0] != &r.ram.medium[3*512] {
		t.Error("Lend returned other memory")
	}
	if n := testing.AllocsPerRun(100, func() { r.a.Open(task); r.unit.Lend(task) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
