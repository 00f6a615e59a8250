package unit

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// SAM-5 §5.2: the group code of the operation code says how long the CDB is.
func TestTable(t *testing.T) {
	length := map[byte]int{0: 6, 1: 10, 2: 10, 4: 16, 5: 12}
	seen := map[[2]int]bool{}
	for _, r := range table {
		if len(r.usage) != length[r.op>>5] {
			t.Errorf("%s: the CDB has %d octets, want %d", r.name, len(r.usage), length[r.op>>5])
			continue
		}
		if r.usage[0] != r.op {
			t.Errorf("%s: the usage data begin with %#x", r.name, r.usage[0])
		}
		if r.sa != none && int(r.usage[1]&0x1f) != r.sa {
			t.Errorf("%s: the usage data have service action %#x", r.name, r.usage[1]&0x1f)
		}
		if k := [2]int{int(r.op), r.sa}; seen[k] {
			t.Errorf("%s: two rows", r.name)
		} else {
			seen[k] = true
		}
	}
}

// SPC-4 §4.3.3 and table F.2: unknown operation codes, unknown service actions, and
// reserved bits have different reasons.
func TestUnknownCommands(t *testing.T) {
	r := newRig(t)
	r.bad(r.a, "01 00 00 00 00 00", nil, 0, IllegalRequest, scsi.InvalidOperationCode)
	r.bad(r.a, "7f 00 00 00 00 00 00 18", nil, 0, IllegalRequest, scsi.InvalidOperationCode)
	r.bad(r.a, "9e 1f", nil, 32, IllegalRequest, scsi.InvalidFieldInCDB)
	if s := r.bad(r.a, cdb10(0x28, 0x20, 0, 1), nil, 512, IllegalRequest, scsi.InvalidFieldInCDB).Sense; s.Field != 2 {
		t.Errorf("RDPROTECT: the field pointer is %d, want octet 1", int(s.Field)-1)
	}
	r.bad(r.a, "00 00 00 00 00 04", nil, 0, IllegalRequest, scsi.InvalidFieldInCDB) // NACA
}

// SPC-4 §6.35: the unit reports what it has, and nothing else.
func TestReportSupportedOperationCodes(t *testing.T) {
	r := newRig(t, twoGroups)
	b := r.good(r.a, "a3 0c 80 00 00 00 00 00 ff ff 00 00", nil, 65535)
	if want := 4 + 20*len(table); len(b) != want {
		t.Errorf("%d octets, want %d", len(b), want)
	}
	b = r.good(r.a, "a3 0c 01 12 00 00 00 00 ff ff 00 00", nil, 65535)
	if string(b) != string(octets(t, "00 03 00 06 12 01 ff ff ff 00")) {
		t.Errorf("INQUIRY: % x", b)
	}
	b = r.good(r.a, "a3 0c 03 9e 00 10 00 00 ff ff 00 00", nil, 65535)
	if b[1] != 3 || b[5] != 0x10 {
		t.Errorf("READ CAPACITY(16): % x", b)
	}
	if b = r.good(r.a, "a3 0c 02 9e 00 1f 00 00 ff ff 00 00", nil, 65535); b[1] != 1 {
		t.Errorf("an unknown service action: % x", b)
	}
	r.bad(r.a, "a3 0c 01 9e 00 00 00 00 ff ff 00 00", nil, 65535, IllegalRequest, scsi.InvalidFieldInCDB)
	r.bad(r.a, "a3 0c 02 12 00 00 00 00 ff ff 00 00", nil, 65535, IllegalRequest, scsi.InvalidFieldInCDB)
	r = newRig(t, func(c *Config) { c.Backend = plain{c.Backend} })
	if b = r.good(r.a, "a3 0c 01 42 00 00 00 00 ff ff 00 00", nil, 65535); b[1] != 1 {
		t.Errorf("UNMAP of a unit that is fully provisioned: % x", b)
	}
	if b = r.good(r.a, "a3 0c 02 a4 00 0a 00 00 ff ff 00 00", nil, 65535); b[1] != 1 {
		t.Errorf("SET TARGET PORT GROUPS of a unit without explicit access states: % x", b)
	}
}
