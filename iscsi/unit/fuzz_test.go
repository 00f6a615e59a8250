package unit

import (
	"encoding/binary"
	"testing"
)

// FuzzUnit runs commands with any CDB and any parameter data. None panics, none touches
// an octet outside of the disk, and Data-In stays inside the buffer.
func FuzzUnit(f *testing.F) {
	for i := range table {
		cdb := make([]byte, CDBLength)
		copy(cdb, table[i].usage)
		f.Add(cdb, []byte{}, uint32(512))
		clear(cdb[2:])
		cdb[1] = byte(max(0, table[i].sa))
		f.Add(cdb, make([]byte, 24), uint32(4096))
	}
	f.Add(octets(f, "42 00 00 00 00 00 00 00 18 00 00 00 00 00 00 00"), octets(f, "0016 0010 00000000 0000000000000003 00000002 00000000"), uint32(24))
	f.Add(octets(f, "15 10 00 00 10 00 00 00 00 00 00 00 00 00 00 00"), octets(f, "00000000 0a0a 24100000000000000000"), uint32(16))
	f.Fuzz(func(t *testing.T, cdb, out []byte, edtl uint32) {
		r := newRig(t, func(c *Config) { c.Removable, c.MaxTransfer = true, 64<<10 })
		r.ram.lends = edtl&1 != 0
		for at := 0; at == 0 || at+CDBLength <= min(len(cdb), 8*CDBLength); at += CDBLength {
			r.fuzzOne(cdb[min(at, len(cdb)):], out, edtl%(128<<10))
		}
		if !r.ram.intact() {
			t.Fatal("an octet outside of the disk was touched")
		}
	})
}

// fuzzOne runs one command with a buffer that has a guard behind it.
func (r *rig) fuzzOne(cdb, out []byte, edtl uint32) {
	task := &Task{Nexus: r.a, EDTL: edtl}
	copy(task.CDB[:], cdb)
	if !r.a.Open(task) && !r.unit.Begin(task) {
		r.check(task)
		return
	}
	if task.Want > uint32(r.unit.MaxTransfer()) && task.Dir == DataOut {
		r.t.Fatalf("% x wants %d octets of Data-Out", cdb, task.Want)
	}
	n := min(task.Want, edtl)
	buffer := make([]byte, n+8)
	binary.BigEndian.PutUint64(buffer[n:], 0x0123456789abcdef)
	task.Data = buffer[:n:n]
	if lent := r.unit.Lend(task); lent != nil {
		task.Data, task.Lent = lent[:n], true
	}
	if task.Dir == DataOut {
		copy(task.Data, out)
	}
	r.unit.Run(task)
	if binary.BigEndian.Uint64(buffer[n:]) != 0x0123456789abcdef {
		r.t.Fatal("an octet outside of the buffer was touched")
	}
	r.check(task)
}

// check looks at the result of a task.
func (r *rig) check(task *Task) {
	if (task.Status == CheckCondition) != (task.Sense.Key != NoSense) {
		r.t.Fatalf("% x: status %v with sense key %v", task.CDB, task.Status, task.Sense.Key)
	}
	if over, under := task.Residual(); over != 0 && under != 0 || under > task.EDTL {
		r.t.Fatalf("% x: residual %d over, %d under", task.CDB, over, under)
	}
	r.unit.AppendSense(nil, task.Sense)
}
