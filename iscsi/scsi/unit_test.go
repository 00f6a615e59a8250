package scsi_test

import (
	"io"
	"reflect"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// memory is a backend of a unit.
type memory []byte

func (m memory) Size() int64                              { return int64(len(m)) }
func (m memory) Sync() error                              { return nil }
func (m memory) Discard(off, n int64) error               { clear(m[off : off+n]); return nil }
func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }
func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > m.Size() {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, m[off:]), nil
}

// initiator sends commands of this package to a unit of the target.
type initiator struct {
	t     *testing.T
	nexus *unit.Nexus
}

func newInitiator(t *testing.T) *initiator {
	t.Helper()
	u, err := unit.New(unit.Config{Backend: make(memory, 1<<20), BlockSize: 512, Serial: "S1", Target: "iqn.2026-01.test:t"})
	if err != nil {
		t.Fatal(err)
	}
	i := &initiator{t, u.Attach("iqn.2026-01.test:i,i,0x800000000001", func() []uint64 { return []uint64{0, uint64(scsi.LUNOf(300))} })}
	for range 4 { // unit attentions
		i.send(scsi.TestUnitReady(), nil)
	}
	return i
}

// send executes a command with as much data as the table of commands tells.
func (i *initiator) send(c scsi.CDB, out []byte) (in []byte, status scsi.Status, sense scsi.Sense) {
	i.t.Helper()
	n, ok := c.Length(512)
	if !ok {
		i.t.Fatalf("%v does not tell its length", &c)
	}
	task := &unit.Task{Nexus: i.nexus, CDB: c, EDTL: uint32(n)}
	u := i.nexus.Unit()
	if u.Begin(task) {
		if dir := c.Op().Dir; n != 0 && task.Want != 0 && (dir == scsi.DataIn) != (task.Dir == unit.DataIn) || task.Want > uint32(n) {
			i.t.Fatalf("%v: the unit wants %d octets, direction %v", &c, task.Want, task.Dir)
		}
		task.Data = make([]byte, min(task.Want, task.EDTL))
		if task.Dir == unit.DataOut {
			copy(task.Data, out)
		}
		u.Run(task)
	}
	if task.Status == unit.CheckCondition {
		var err error
		if sense, err = scsi.ParseSense(u.AppendSense(nil, task.Sense)); err != nil {
			i.t.Fatalf("%v: %v", &c, err)
		}
	}
	if task.Dir == unit.DataIn {
		in = task.Data[:min(int(task.Length), len(task.Data))]
	}
	return in, scsi.Status(task.Status), sense
}

// ask sends a command that must succeed.
func (i *initiator) ask(c scsi.CDB, out []byte) []byte {
	i.t.Helper()
	in, status, sense := i.send(c, out)
	if !status.Ended() {
		i.t.Fatalf("%v: %v, %v", &c, status, sense)
	}
	return in
}

// TestUnitAnswers: an initiator understands all that a unit of the target says.
func TestUnitAnswers(t *testing.T) {
	i := newInitiator(t)
	q, err := scsi.ParseInquiry(i.ask(scsi.StandardInquiry(scsi.MaxInquiryLen), nil))
	if err != nil || q.Vendor != "STAG" || q.Type != scsi.DiskDevice || q.Version != 6 || !q.CmdQueue || len(q.Standards) < 4 {
		t.Errorf("INQUIRY %+v, %v", q, err)
	}
	pages, err := scsi.ParseSupported(i.ask(scsi.VPDInquiry(scsi.PageSupported, 255), nil))
	if err != nil || !reflect.DeepEqual(pages, []uint8{0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2}) {
		t.Errorf("pages %x, %v", pages, err)
	}
	serial, err := scsi.ParseSerial(i.ask(scsi.VPDInquiry(scsi.PageSerial, 255), nil))
	if err != nil || serial != "S1" {
		t.Errorf("serial %q, %v", serial, err)
	}
	ids, err := scsi.ParseIdentification(i.ask(scsi.VPDInquiry(scsi.PageIdentification, 1024), nil))
	if d, ok := scsi.UnitName(ids); err != nil || !ok || d.Type != scsi.DesignatorNAA || len(d.Value) != 8 {
		t.Errorf("designators %+v, %v", ids, err)
	}
	limits, err := scsi.ParseLimits(i.ask(scsi.VPDInquiry(scsi.PageLimits, 255), nil))
	if err != nil || limits.MaxTransfer == 0 || limits.MaxUnmap == 0 || limits.MaxCompareAndWrite == 0 || limits.MaxAtomic == 0 {
		t.Errorf("limits %+v, %v", limits, err)
	}
	thin, err := scsi.ParseProvisioning(i.ask(scsi.VPDInquiry(scsi.PageProvisioning, 255), nil))
	if err != nil || !thin.Unmap || !thin.ReadsZero || thin.Type != 2 {
		t.Errorf("provisioning %+v, %v", thin, err)
	}
	c, err := scsi.ParseCapacity16(i.ask(scsi.ReadCapacity16(), nil))
	if err != nil || c.Size() != 1<<20 || !c.Thin {
		t.Errorf("capacity %+v, %v", c, err)
	}
	luns, missing, err := scsi.ParseLUNs(i.ask(scsi.ReportLUNs(scsi.SelectUnits, 64), nil))
	if err != nil || missing != 0 || !reflect.DeepEqual(luns, []scsi.LUN{0, scsi.LUNOf(300)}) {
		t.Errorf("LUNs %v, %d missing, %v", luns, missing, err)
	}
	m, err := scsi.ParseMode10(i.ask(scsi.ModeSense10(scsi.ModeAll, 0, 512), nil))
	if cache, known := m.WriteCache(); err != nil || !cache || !known || !m.ForceAccess {
		t.Errorf("mode %+v, %v", m, err)
	}
	groups, err := scsi.ParsePortGroups(i.ask(scsi.ReportTargetPortGroups(512), nil))
	if err != nil || len(groups) != 1 || groups[0].State != scsi.Optimized {
		t.Errorf("port groups %+v, %v", groups, err)
	}
	support, err := scsi.ParseSupport(i.ask(scsi.ReportSupportedOpcode(0x9e, 0x10, true, 64), nil))
	if err != nil || !support.Supported || len(support.Usage) != 16 {
		t.Errorf("support %+v, %v", support, err)
	}
}

// TestUnitCommands: a unit of the target does what the commands of this package ask.
func TestUnitCommands(t *testing.T) {
	i := newInitiator(t)
	block := make([]byte, 512)
	for n := range block {
		block[n] = uint8(n)
	}
	i.ask(scsi.Write(7, 1, scsi.FUA), block)
	if got := i.ask(scsi.Read(7, 1, 0), nil); string(got) != string(block) {
		t.Errorf("read %x", got[:16])
	}
	i.ask(scsi.Verify(7, 1, scsi.VerifyAll), block)
	i.ask(scsi.WriteSame(100, 20, 0), block)
	i.ask(scsi.CompareAndWrite(100, 1, 0), append(append([]byte{}, block...), make([]byte, 512)...))
	_, status, sense := i.send(scsi.CompareAndWrite(100, 1, 0), append(append([]byte{}, block...), make([]byte, 512)...))
	if status != scsi.CheckCondition || sense.Key != scsi.Miscompare || sense.Code != scsi.MiscompareDuringVerify {
		t.Errorf("second COMPARE AND WRITE: %v, %v", status, sense)
	}
	list := scsi.AppendUnmap(nil, []scsi.Extent{{LBA: 7, Blocks: 1}})
	i.ask(scsi.Unmap(uint16(len(list))), list)
	if got := i.ask(scsi.Read(7, 1, 0), nil); string(got) != string(make([]byte, 512)) {
		t.Errorf("read after UNMAP %x", got[:16])
	}
	i.ask(scsi.SynchronizeCache(0, 0), nil)
	i.ask(scsi.PersistentReserveOut(scsi.Register, 0), scsi.PersistOut{NewKey: 5}.Append(nil))
	i.ask(scsi.PersistentReserveOut(scsi.Reserve, scsi.WriteExclusive), scsi.PersistOut{Key: 5}.Append(nil))
	r, err := scsi.ParseReservation(i.ask(scsi.PersistentReserveIn(scsi.ReadReservation, 24), nil))
	if err != nil || !r.Held || r.Key != 5 || r.Type != scsi.WriteExclusive {
		t.Errorf("reservation %+v, %v", r, err)
	}
	_, keys, err := scsi.ParseKeys(i.ask(scsi.PersistentReserveIn(scsi.ReadKeys, 64), nil))
	if err != nil || !reflect.DeepEqual(keys, []uint64{5}) {
		t.Errorf("keys %v, %v", keys, err)
	}
	_, status, sense = i.send(scsi.Read(1<<40, 1, 0), nil)
	if status != scsi.CheckCondition || sense.Key != scsi.IllegalRequest || sense.Code != scsi.LBAOutOfRange {
		t.Errorf("LBA beyond the end: %v, %v", status, sense)
	}
}
