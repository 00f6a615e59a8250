package e2e

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/rawpeer"
)

// fpdus is what tshark reports of the FPDUs that one side sent.
type fpdus struct {
	all       int // FPDUs
	good      int // FPDUs with "Good CRC32"
	unchecked int // FPDUs on connections without CRC
	markers   int // Markers in the FPDUs
	messages  map[wire.Opcode]int
	octets    map[wire.Opcode]int // octets of payload, including Read Requests and Terminates
}

// judged is what tshark reports of a capture.
type judged struct {
	sides     [2]fpdus // by sender
	frames    [2]int   // MPA Requests and Replies
	private   []string // private data of these frames, in hex
	complains []string
}

// tshark prints for each FPDU: its length, its CRC, the kind of header, whether it is the last of a message, and
// its opcode.
var (
	lineSource = regexp.MustCompile(`^Ethernet II, Src: ([0-9a-f:]+)`)
	lineLength = regexp.MustCompile(`^ +ULPDU length: (\d+) bytes$`)
	lineCRC    = regexp.MustCompile(`^ +CRC(?: check)?: 0x[0-9a-f]{8}( \(Good CRC32\)| \(Bad CRC32.*\))?$`)
	lineTagged = regexp.MustCompile(`= Tagged flag: (True|False)$`)
	lineLast   = regexp.MustCompile(`= Last flag: (True|False)$`)
	lineOpcode = regexp.MustCompile(`= OpCode: .*\(0x([0-9a-f]+)\)$`)
	lineMarker = regexp.MustCompile(`^ +FPDU back pointer: `)
	lineFrame  = regexp.MustCompile(`^ +(Request|Reply) frame header$`)
	linePDATA  = regexp.MustCompile(`^ +Private data: ([0-9a-f]*)`)
)

// known are tshark's remarks that are no faults. tshark was written for MPA revision 1. It warns of revision 2 and of
// its flag S.
var known = []string{
	"Res field is NOT set to zero as required by RFC 5044",
	"Rev field is NOT set to one as required by RFC 5044",
	"Reject bit set by Responder",
}

// judge has tshark dissect the capture, which must begin before the connections.
func (d *dump) judge(r *rig) *judged {
	r.Helper()
	// tshark's heuristic for RPC over RDMA would take short Sends for RPC.
	tshark := exec.Command("tshark", "-r", d.file, "-n", "--disable-protocol", "rpcordma",
		"-o", "tcp.check_checksum:TRUE", "-O", "iwarp_mpa,iwarp_ddp_rdmap")
	said := new(strings.Builder)
	tshark.Stderr = said
	out, err := tshark.StdoutPipe()
	r.Must(err)
	r.Must(tshark.Start())
	var p printed
	for i := range p.sides {
		p.sides[i] = fpdus{messages: map[wire.Opcode]int{}, octets: map[wire.Opcode]int{}}
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		p.line(r, lines.Text())
	}
	r.Must(lines.Err())
	if err := tshark.Wait(); err != nil {
		r.Fatalf("tshark: %v: %s", err, said)
	}
	return &p.judged
}

// streams returns both directions of the only connection in the capture, the dialling end first.
func (d *dump) streams(r *rig) (b [2][]byte) {
	r.Helper()
	out, err := exec.Command("tshark", "-r", d.file, "-n", "-q", "-z", "follow,tcp,raw,0").Output()
	r.Must(err)
	for line := range strings.Lines(string(out)) {
		from := 0
		if strings.HasPrefix(line, "\t") { // the other direction
			from = 1
		}
		octets, err := hex.DecodeString(strings.TrimSpace(line))
		if err == nil {
			b[from] = append(b[from], octets...)
		}
	}
	return b
}

// readMarked reads a stream with Markers, which begins with its Request or Reply.
func readMarked(r *rig, b []byte) *fpdus {
	r.Helper()
	f := &fpdus{messages: map[wire.Opcode]int{}, octets: map[wire.Opcode]int{}}
	h, rest, ok := wire.ParseMPA(b)
	if !ok {
		r.Fatalf("the stream begins with %x", b[:min(len(b), 32)])
	}
	stream := bytes.NewReader(rest[h.PrivateLen():])
	f.markers = (stream.Len() + wire.MarkerSpacing - 1) / wire.MarkerSpacing
	for m := new(rawpeer.Marked); stream.Len() > 0; {
		ulpdu, err := m.Read(stream)
		r.Must(err)
		f.all++
		f.good++
		if h, payload, ok := wire.ParseTagged(ulpdu); ok {
			f.add(h.Opcode(), len(payload), h.Last())
		} else if h, payload, ok := wire.ParseUntagged(ulpdu); ok {
			f.add(h.Opcode(), len(payload), h.Last())
		}
	}
	return f
}

// add counts a segment.
func (f *fpdus) add(op wire.Opcode, n int, last bool) {
	f.octets[op] += n
	if last {
		f.messages[op]++
	}
}

// printed reads tshark's output line by line.
type printed struct {
	judged
	side   pair.Side
	length int // length of the FPDU that tshark is describing
	tagged bool
	last   bool
}

func (p *printed) line(r *rig, line string) {
	f := &p.sides[p.side]
	if m := lineSource.FindStringSubmatch(line); m != nil {
		p.side = ours
		if m[1] == r.pair.Ends[theirs].MAC.String() {
			p.side = theirs
		}
	} else if m := lineLength.FindStringSubmatch(line); m != nil {
		f.all++
		p.length, _ = strconv.Atoi(m[1])
	} else if m := lineCRC.FindStringSubmatch(line); m != nil {
		p.crc(f, m[1])
	} else if m := lineTagged.FindStringSubmatch(line); m != nil {
		p.tagged = m[1] == "True"
	} else if m := lineLast.FindStringSubmatch(line); m != nil {
		p.last = m[1] == "True"
	} else if m := lineOpcode.FindStringSubmatch(line); m != nil {
		p.opcode(f, m[1])
	} else if lineMarker.MatchString(line) {
		f.markers++
	} else if lineFrame.MatchString(line) {
		p.frames[p.side]++
	} else if m := linePDATA.FindStringSubmatch(line); m != nil {
		p.private = append(p.private, m[1])
	} else if strings.Contains(line, "Malformed") || strings.Contains(line, "Expert Info") {
		p.remark(line)
	}
}

func (p *printed) crc(f *fpdus, verdict string) {
	switch {
	case strings.Contains(verdict, "Good"):
		f.good++
	case verdict == "":
		f.unchecked++
	default:
		p.complains = append(p.complains, "bad CRC")
	}
}

// opcode parses the last line that tshark prints about an FPDU's headers.
func (p *printed) opcode(f *fpdus, hex string) {
	n, _ := strconv.ParseUint(hex, 16, 8)
	op := wire.Opcode(n)
	header := wire.UntaggedLen
	if p.tagged {
		header = wire.TaggedLen
	}
	f.add(op, p.length-header, p.last)
}

func (p *printed) remark(line string) {
	for _, k := range known {
		if strings.Contains(line, k) {
			return
		}
	}
	p.complains = append(p.complains, strings.TrimSpace(line))
}
