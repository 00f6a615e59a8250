package unit

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// SBC-3 §4.11: a sanitize operation goes on behind its command. REQUEST SENSE and the sense
// of refused commands say how far it is. Neither a reset nor a write that began before
// changes anything.
func TestSanitizeInProgress(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxTransfer = 64 << 10 })
	r.ram.lends = true
	big := newRAM(3 * sanitizeStep)
	big.lends = true
	r.unit.conf.Backend, r.unit.blocks = big, 3*sanitizeStep/512
	copy(big.medium, bytes.Repeat([]byte{1}, len(big.medium)))
	early := r.begin(r.b, cdb10(0x2a, 0, 0, 1), 512)
	early.Data = bytes.Repeat([]byte{9}, 512)
	task := r.begin(r.a, "48 82 00 00 00 00 00 00 00 00", 0)
	if !r.unit.Claim(task).Free() {
		t.Fatal("a write has lent memory")
	}
	r.unit.Run(task)
	op := r.unit.Sanitizing(task)
	if task.Status != Good || op == nil || !task.Immediate() {
		t.Fatalf("status %v, operation %v", task.Status, op)
	}
	last := -1
	for more := true; more; {
		for _, cdb := range []string{tur, cdb10(0x28, 0, 0, 1), cdb10(0x2a, 0, 0, 1), "1b 00 00 00 01 00", "48 02 00 00 00 00 00 00 00 00", "5e 00 00 00 00 00 00 ff ff 00"} {
			s := r.bad(r.b, cdb, make([]byte, 512), 512, NotReady, scsi.SanitizeInProgress).Sense
			if !s.HasProgress {
				t.Errorf("%s: no progress", cdb)
			}
		}
		for _, cdb := range []string{"12 00 00 00 ff 00", "a0 00 00 00 00 00 00 00 10 00 00 00", "1a 08 3f 00 ff 00"} {
			r.good(r.b, cdb, nil, 4096)
		}
		b := r.good(r.b, "03 00 00 00 ff 00", nil, 255)
		far := int(binary.BigEndian.Uint16(b[16:]))
		if b[2] != byte(NotReady) || b[12] != 0x04 || b[13] != 0x1b || b[15] != 0x80 || far <= last {
			t.Errorf("REQUEST SENSE: % x after progress %d", b, last)
		}
		last = far
		if r.a.gate.Load() != 0 || r.b.gate.Load() != 0 {
			t.Error("reads and writes need no further check")
		}
		r.unit.Reset()
		r.good(r.b, "03 00 00 00 ff 00", nil, 255) // the unit attention
		r.good(r.a, "03 00 00 00 ff 00", nil, 255)
		more = op.Step()
	}
	if r.unit.Run(early); early.Status != CheckCondition || early.Sense.Code != scsi.SanitizeInProgress {
		t.Errorf("a write that began before: status %v", early.Status)
	}
	op.End(nil)
	if !allZero(big.medium) {
		t.Error("octets are left")
	}
	r.good(r.b, tur, nil, 0)
	r.good(r.b, cdb10(0x2a, 0, 0, 1), make([]byte, 512), 0)
	task = r.begin(r.a, "48 02 00 00 00 00 00 00 00 00", 0)
	r.unit.Run(task)
	op = r.unit.Sanitizing(task)
	op.Step()
	op.End(task)
	if task.Status != CheckCondition || task.Sense.Code != scsi.SanitizeFailed {
		t.Errorf("an operation that was stopped: status %v", task.Status)
	}
	r.bad(r.a, cdb10(0x28, 0, 0, 1), nil, 512, MediumError, scsi.SanitizeFailed)
}
