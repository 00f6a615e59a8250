//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// These are opcodes of RFC 7143 §11.2.1.2, as tshark prints them.
const (
	opCommand = 0x01
	opDataOut = 0x05
	opR2T     = 0x31
)

// noTag is the reserved tag. A Data-Out PDU with it is unsolicited.
const noTag = 0xffffffff

// scsiPDU is what tshark says of a PDU that has to do with a write.
type scsiPDU struct {
	opcode  int
	length  int // octets of data
	final   bool
	ttt     uint32
	desired int // octets that an R2T asks for
}

// These expressions match tshark's output for a field.
var (
	lineISCSI   = regexp.MustCompile(`^iSCSI \(`)
	linePDU     = regexp.MustCompile(`^ +(?:\.+.*= )?Opcode: .*\(0x([0-9a-f]+)\)$`)
	lineLength  = regexp.MustCompile(`^ +DataSegmentLength: (\d+)`)
	lineFinal   = regexp.MustCompile(`^Flags: 0x[0-9a-f]+.*\bF\b`)
	lineTTT     = regexp.MustCompile(`^ +TargetTransferTag: 0x([0-9a-f]+)`)
	lineDesired = regexp.MustCompile(`^ +DesiredDataLength: (\d+)`)
)

// dissected returns the PDUs that tshark finds in the row's capture.
func (r *rig) dissected() (all []scsiPDU) {
	r.Helper()
	file := filepath.Join(r.TempDir(), "row.pcap")
	r.Must(os.WriteFile(file, r.sniffer.pcap(), 0o644))
	out, err := exec.Command("tshark", "-r", file, "-n", "-o", anyOrder, "-Y", "iscsi", "-O", "iscsi").Output()
	if err != nil {
		r.Fatalf("tshark: %v", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if lineISCSI.MatchString(line) {
			all = append(all, scsiPDU{})
		}
		if len(all) == 0 {
			continue
		}
		p := &all[len(all)-1]
		if m := linePDU.FindStringSubmatch(line); m != nil && p.opcode == 0 {
			p.opcode = r.number(m[1], 16)
		} else if m := lineLength.FindStringSubmatch(line); m != nil {
			p.length = r.number(m[1], 10)
		} else if m := lineTTT.FindStringSubmatch(line); m != nil {
			p.ttt = uint32(r.number(m[1], 16))
		} else if m := lineDesired.FindStringSubmatch(line); m != nil {
			p.desired = r.number(m[1], 10)
		} else if lineFinal.MatchString(line) {
			p.final = true
		}
	}
	r.Must(lines.Err())
	return all
}

func (r *rig) number(digits string, base int) int {
	r.Helper()
	n, err := strconv.ParseUint(digits, base, 32)
	r.Must(err)
	return int(n)
}
