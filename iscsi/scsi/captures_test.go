package scsi_test

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/test/captures"
)

// answer is a captured command, and what the target said.
type answer struct {
	capture     string
	lun         scsi.LUN
	cdb         scsi.CDB
	edtl        uint32
	flags       pdu.Flags // of the command
	data        []byte
	status      scsi.Status
	sense       []byte
	over, under uint32
	out         int // octets of Data-Out and immediate data
}

// answers pairs the commands of all captured connections over TCP with their answers.
func answers(t *testing.T) (all []*answer) {
	t.Helper()
	for name, c := range captures.ISCSI(t) {
		d := digests(c.Server.Bytes())
		all = append(all, pair(name, walk(c.Client.Bytes(), d), walk(c.Server.Bytes(), d))...)
	}
	return all
}

// digests finds the digests that the target has chosen.
func digests(server []byte) (d pdu.Digests) {
	for _, p := range walk(server, pdu.Digests{}) {
		if p.Header().Opcode() != pdu.OpLoginResponse {
			break
		}
		for text := pdu.NewText(p.Data()); text.Next(); {
			on := string(text.Value) == "CRC32C"
			switch string(text.Key) {
			case "HeaderDigest":
				d.Header = on
			case "DataDigest":
				d.Data = on
			}
		}
	}
	return d
}

// walk parses the PDUs of a direction. The login has no digests.
func walk(b []byte, d pdu.Digests) (all []pdu.PDU) {
	for {
		use := d
		if len(b) >= pdu.HeaderLen {
			if op := (*pdu.Header)(b).Opcode(); op == pdu.OpLogin || op == pdu.OpLoginResponse {
				use = pdu.Digests{}
			}
		}
		p, rest, ok := pdu.Parse(use, b)
		if !ok {
			return all
		}
		all, b = append(all, p), rest
	}
}

// pair gives each command its answer. An initiator may use a tag again after the status.
func pair(name string, client, server []pdu.PDU) (all []*answer) {
	open := map[pdu.Tag][]*answer{} // the commands with a tag, in order
	for _, p := range client {
		h := p.Header()
		tag := h.InitiatorTaskTag()
		switch n := len(open[tag]); {
		case h.Opcode() == pdu.OpCommand:
			a := &answer{
				capture: name, lun: scsi.LUN(h.LUN()), cdb: scsi.CDB(h.CDB()), edtl: h.EDTL(), flags: h.Flags(), out: h.DataLength(), status: noStatus,
			}
			all, open[tag] = append(all, a), append(open[tag], a)
		case h.Opcode() == pdu.OpDataOut && n > 0:
			open[tag][n-1].out += h.DataLength()
		}
	}
	for _, p := range server {
		h := p.Header()
		op, tag := h.Opcode(), h.InitiatorTaskTag()
		if len(open[tag]) == 0 || op != pdu.OpDataIn && op != pdu.OpResponse {
			continue
		}
		a := open[tag][0]
		if op == pdu.OpDataIn {
			a.data = append(a.data, p.Data()...)
		} else {
			a.sense, _, _ = pdu.SplitSense(p.Data())
		}
		if op == pdu.OpResponse || h.Has(pdu.StatusPresent) {
			a.end(h)
			open[tag] = open[tag][1:]
		}
	}
	return all
}

// noStatus is the status of a command that the target did not answer.
const noStatus scsi.Status = 0xff

func (a *answer) end(h *pdu.Header) {
	a.status = scsi.Status(h.Status())
	if h.Has(pdu.Overflow) {
		a.over = h.Residual()
	}
	if h.Has(pdu.Underflow) {
		a.under = h.Residual()
	}
}

// find returns the first answer with status GOOD to a command that begins with the given
// octets, from a capture.
func find(t *testing.T, all []*answer, capture string, lun scsi.LUN, cdb string) *answer {
	t.Helper()
	for _, a := range all {
		if a.capture == "iscsi/"+capture && a.lun == lun && strings.HasPrefix(string(a.cdb[:]), cdb) && a.status == scsi.Good {
			return a
		}
	}
	t.Fatalf("%s: LUN %v does not answer %x", capture, lun, cdb)
	return nil
}

// TestCapturedCommands compares each captured command that had status GOOD with the table
// of commands: direction, length, residual counts.
func TestCapturedCommands(t *testing.T) {
	seen := map[string]int{}
	for _, a := range answers(t) {
		row := a.cdb.Op()
		if row.Name == "" {
			t.Errorf("%s: no row for %x", a.capture, a.cdb)
		}
		if a.status != scsi.Good || !a.flags.Has(pdu.Read) && !a.flags.Has(pdu.Write) && a.edtl == 0 && row.Dir != scsi.NoData {
			continue
		}
		seen[row.Name]++
		if read, write := a.flags.Has(pdu.Read), a.flags.Has(pdu.Write); a.edtl != 0 && (read != (row.Dir == scsi.DataIn) || write != (row.Dir == scsi.DataOut)) {
			t.Errorf("%s: %v has direction %v, and was sent with R %v, W %v", a.capture, &a.cdb, row.Dir, read, write)
		}
		most, ok := a.cdb.Length(512)
		if !ok {
			t.Errorf("%s: %v does not tell its length", a.capture, &a.cdb)
		}
		n, ok := scsi.Transferred(a.edtl, a.over, a.under)
		if !ok || row.Dir == scsi.DataIn && int(n) != len(a.data) {
			t.Errorf("%s: %v: EDTL %d, over %d, under %d, data %d", a.capture, &a.cdb, a.edtl, a.over, a.under, len(a.data))
		}
		if _, _, blocks := a.cdb.Extent(); blocks {
			if over, under := scsi.Residual(most, a.edtl); over != a.over || under != a.under {
				t.Errorf("%s: %v: EDTL %d, over %d, under %d; computed %d and %d", a.capture, &a.cdb, a.edtl, a.over, a.under, over, under)
			}
		} else if uint64(len(a.data)) > most {
			t.Errorf("%s: %v: %d octets of at most %d", a.capture, &a.cdb, len(a.data), most)
		}
	}
	for _, name := range []string{"INQUIRY", "TEST UNIT READY", "READ(10)", "WRITE(10)", "READ CAPACITY(16)", "MODE SENSE(6)", "REPORT LUNS", "REPORT SUPPORTED OPERATION CODES", "SYNCHRONIZE CACHE(10)"} {
		if seen[name] == 0 {
			t.Errorf("no %s in the captures", name)
		}
	}
}
