package unit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// ram is a backend with a guard zone on both sides of the medium.
type ram struct {
	all    []byte
	medium []byte
	lends  bool
	syncs  int
	fail   error // what ReadAt and WriteAt return
}

const guard = 64 << 10

func newRAM(size int) *ram {
	r := &ram{all: bytes.Repeat([]byte{0xcc}, size+2*guard)}
	r.medium = r.all[guard : guard+size : guard+size]
	clear(r.medium)
	return r
}

// intact reports whether the guard zones are untouched.
func (r *ram) intact() bool {
	zone := bytes.Repeat([]byte{0xcc}, guard)
	return bytes.Equal(r.all[:guard], zone) && bytes.Equal(r.all[len(r.all)-guard:], zone)
}

func (r *ram) Size() int64 { return int64(len(r.medium)) }
func (r *ram) Sync() error { r.syncs++; return nil }

func (r *ram) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > r.Size() {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, r.medium[off:]), r.fail
}

func (r *ram) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > r.Size() {
		return 0, io.ErrShortWrite
	}
	if r.fail != nil {
		return 0, r.fail
	}
	return copy(r.medium[off:], p), nil
}

func (r *ram) Discard(off, n int64) error { clear(r.medium[off : off+n]); return nil }

func (r *ram) Lend(off, n int64, _ bool) []byte {
	if !r.lends {
		return nil
	}
	return r.medium[off : off+n : off+n]
}

// plain hides the optional methods of a backend.
type plain struct{ Backend }

// rig is a unit with two initiators.
type rig struct {
	t    testing.TB
	unit *Unit
	ram  *ram
	a, b *Nexus
}

const rigBlocks = 1024

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, ram: newRAM(rigBlocks * 512)}
	c := Config{Backend: r.ram, Serial: "S1", Target: "iqn.2026-01.test:t"}
	for _, f := range change {
		f(&c)
	}
	u, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.unit = u
	luns := func() []uint64 { return []uint64{0, 1 << 48} }
	r.a, r.b = u.Attach("iqn.a,i,0x80000000000a", luns), u.Attach("iqn.b,i,0x80000000000b", luns)
	return r
}

// run executes a command with all of its data. in is how much Data-In is expected.
func (r *rig) run(n *Nexus, cdb string, out []byte, in int) *Task {
	r.t.Helper()
	return r.runEDTL(n, cdb, out, uint32(max(in, len(out))))
}

func (r *rig) runEDTL(n *Nexus, cdb string, out []byte, edtl uint32) *Task {
	r.t.Helper()
	t := &Task{Nexus: n, EDTL: edtl}
	copy(t.CDB[:], octets(r.t, cdb))
	if !r.unit.Begin(t) {
		return t
	}
	t.Data = make([]byte, min(t.Want, edtl))
	if t.Dir == DataOut {
		copy(t.Data, out)
	}
	r.unit.Claim(t)
	r.unit.Run(t)
	if op := r.unit.Sanitizing(t); op != nil {
		for op.Step() {
		}
		op.End(t)
	}
	return t
}

// begin begins a command and returns its task.
func (r *rig) begin(n *Nexus, cdb string, edtl int) *Task {
	r.t.Helper()
	t := &Task{Nexus: n, EDTL: uint32(edtl)}
	copy(t.CDB[:], octets(r.t, cdb))
	if !r.unit.Begin(t) {
		r.t.Fatalf("%s: status %v, sense %v, %v", cdb, t.Status, t.Sense.Key, t.Sense.Code)
	}
	return t
}

// data returns the Data-In of a task.
func data(t *Task) []byte { return t.Data[:min(int(t.Length), len(t.Data))] }

// good runs a command that must succeed, and returns its Data-In.
func (r *rig) good(n *Nexus, cdb string, out []byte, in int) []byte {
	r.t.Helper()
	t := r.run(n, cdb, out, in)
	if t.Status != Good {
		r.t.Fatalf("%s: status %v, sense %v, %v, want GOOD", cdb, t.Status, t.Sense.Key, t.Sense.Code)
	}
	return data(t)
}

// bad runs a command that must fail with a sense.
func (r *rig) bad(n *Nexus, cdb string, out []byte, in int, key scsi.Key, code scsi.Code) *Task {
	r.t.Helper()
	t := r.run(n, cdb, out, in)
	if t.Status != CheckCondition || t.Sense.Key != key || t.Sense.Code != code {
		r.t.Fatalf("%s: status %v, sense %v, %v, want CHECK CONDITION %v, %v", cdb, t.Status, t.Sense.Key, t.Sense.Code, key, code)
	}
	return t
}

// conflict runs a command that must meet a reservation.
func (r *rig) conflict(n *Nexus, cdb string, out []byte, in int) {
	r.t.Helper()
	if t := r.run(n, cdb, out, in); t.Status != ReservationConflict {
		r.t.Fatalf("%s: status %v, want RESERVATION CONFLICT", cdb, t.Status)
	}
}

// octets decodes hexadecimal digits with spaces.
func octets(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cdb10 makes a CDB of 10 octets.
func cdb10(op byte, flags byte, lba uint32, n uint16) string {
	b := make([]byte, 10)
	b[0], b[1] = op, flags
	binary.BigEndian.PutUint32(b[2:], lba)
	binary.BigEndian.PutUint16(b[7:], n)
	return hex.EncodeToString(b)
}

// cdb16 makes a CDB of 16 octets.
func cdb16(op byte, flags byte, lba uint64, n uint32) string {
	b := make([]byte, 16)
	b[0], b[1] = op, flags
	binary.BigEndian.PutUint64(b[2:], lba)
	binary.BigEndian.PutUint32(b[10:], n)
	return hex.EncodeToString(b)
}

// pattern returns n octets that tell their place.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + i + i>>8)
	}
	return b
}
