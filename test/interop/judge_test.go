//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
)

// TestJudged lets tshark dissect captures of rping's exchange. tshark must find every
// message of stag with a good CRC, and must report no fault. In the other direction it
// finds only the messages that siw has not split over segments.
func TestJudged(t *testing.T) {
	client := map[wire.Opcode]int{wire.OpSend: 2 * startupRounds, wire.OpReadResponse: startupRounds}
	server := map[wire.Opcode]int{wire.OpSend: 2 * startupRounds, wire.OpReadRequest: startupRounds, wire.OpWrite: startupRounds}
	for _, s := range []startup{
		{name: "revision 2", family: ipv4, p: rdma.ConnParams{NoPeerToPeer: true}, want: rdma.Conn{Revision: 2, CRC: true}},
		{name: "revision 2", family: ipv6, p: rdma.ConnParams{NoPeerToPeer: true}, want: rdma.Conn{Revision: 2, CRC: true}},
		{name: "no CRC", family: ipv4, p: rdma.ConnParams{NoPeerToPeer: true, NoCRC: true}, want: rdma.Conn{Revision: 2}},
		{name: "revision 2", family: ipv4, listen: true, want: rdma.Conn{Revision: 2, CRC: true}},
		{name: "peer-to-peer", family: ipv6, listen: true, siw: []setting{siwRTR}, want: rdma.Conn{Revision: 2, CRC: true}},
		{name: "revision 1", family: ipv4, listen: true, siw: []setting{siwOld}, want: rdma.Conn{Revision: 1, CRC: true}},
	} {
		messages := client
		if s.listen {
			messages = server
		}
		s.row(t, func(r *rig) {
			s.run(r)
			r.judge(s.our.String(), s.want.CRC, messages)
		})
	}
}

// judged is tshark's result for one direction.
type judged struct {
	good, bad, unchecked int // number of FPDUs, by the state of the CRC
	messages             map[wire.Opcode]int
	complaints           []string
}

// These expressions match tshark's output for a frame, and for each FPDU in it.
var (
	lineSource    = regexp.MustCompile(`^Internet Protocol Version [46], Src: ([0-9a-f.:]+),`)
	lineCRC       = regexp.MustCompile(`^ +CRC(?: check)?: 0x[0-9a-f]{8}(?: \((Good|Bad) CRC32.*\))?$`)
	lineLast      = regexp.MustCompile(`= Last flag: (True|False)$`)
	lineOpcode    = regexp.MustCompile(`= OpCode: .*\(0x([0-9a-f]+)\)$`)
	lineComplaint = regexp.MustCompile(`Expert Info \((?:Warning|Error)/[^)]*\): (.*)\]`)
)

// harmless are tshark's remarks on MPA revision 2. tshark knows only revision 1.
var harmless = []string{"Res field is NOT set to zero as required by RFC 5044", "Rev field is NOT set to one as required by RFC 5044"}

// judge compares tshark's result for the row's capture with the messages that stag has
// sent.
func (r *rig) judge(our string, crc bool, messages map[wire.Opcode]int) {
	r.Helper()
	file := filepath.Join(r.TempDir(), "row.pcap")
	r.Must(os.WriteFile(file, r.sniffer.pcap(), 0o644))
	// tshark's heuristic for RPC over RDMA would take short Sends for RPC.
	out, err := exec.Command("tshark", "-r", file, "-n", "-o", anyOrder, "-Y", "tcp", "--disable-protocol", "rpcordma", "-O", "iwarp_mpa,iwarp_ddp_rdmap").Output()
	if err != nil {
		r.Fatalf("tshark: %v", err)
	}
	for from, f := range read(r, out) {
		r.Logf("from %s: %+v", from, *f)
		for _, c := range f.complaints {
			r.Errorf("tshark complains about %s: %s", from, c)
		}
		n := 0
		for _, count := range f.messages {
			n += count
		}
		if f.bad != 0 || n == 0 || crc && (f.good < n || f.unchecked != 0) || !crc && f.good != 0 {
			r.Errorf("from %s: %d messages, FPDUs with good CRC %d, bad %d, unchecked %d; want CRC %v", from, n, f.good, f.bad, f.unchecked, crc)
		}
		for op, want := range messages {
			if from == our && f.messages[op] != want {
				r.Errorf("tshark finds %d of our %d %v", f.messages[op], want, op)
			}
		}
	}
}

// read parses tshark's output, by source address.
func read(r *rig, out []byte) map[string]*judged {
	r.Helper()
	found, last := map[string]*judged{}, false
	var f *judged
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := lineSource.FindStringSubmatch(line); m != nil {
			if found[m[1]] == nil {
				found[m[1]] = &judged{messages: map[wire.Opcode]int{}}
			}
			f = found[m[1]]
		} else if m := lineCRC.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "Good":
				f.good++
			case "Bad":
				f.bad++
			default:
				f.unchecked++
			}
		} else if m := lineLast.FindStringSubmatch(line); m != nil {
			last = m[1] == "True"
		} else if m := lineOpcode.FindStringSubmatch(line); m != nil && last {
			op, err := strconv.ParseUint(m[1], 16, 8)
			r.Must(err)
			f.messages[wire.Opcode(op)]++
		} else if m := lineComplaint.FindStringSubmatch(line); m != nil && !slices.Contains(harmless, strings.TrimSpace(m[1])) {
			f.complaints = append(f.complaints, m[1])
		}
	}
	r.Must(lines.Err())
	if len(found) != 2 {
		r.Errorf("tshark finds packets of %d hosts: %s", len(found), fmt.Sprint(found))
	}
	return found
}
