package dump

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/captures"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// TestPDUs has PDUs of open-iscsi, libiscsi, tgtd and LIO, and what is printed.
func TestPDUs(t *testing.T) {
	header := func(text string) []byte { return octets(t, text) }
	for name, c := range map[string]struct {
		payload []byte
		kind    Kind
		text    string
	}{
		"command": {header("01c10000 00000000 00000000 00000000 02000000 00000042 00000001 00000002 12000000 42000000 00000000 00000000"), Command,
			"SCSI Command itt 0x02000000 lun 0 INQUIRY edtl 66 cmdsn 1 expstatsn 2 length 0 final"},
		"write with immediate data": {header("01a10000 00002000 00010000 00000000 1eb483f2 00018000 7f160c7d 0000000e 2a080000 08000000 c0000000 00000000"), Command,
			"SCSI Command itt 0x1eb483f2 lun 1 WRITE(10) lba 2048 blocks 192 edtl 98304 cmdsn 2132151421 expstatsn 14 length 8192 final"},
		"check condition": {header("21800002 00000014 00000000 00000000 1eb483e5 00000000 00000001 7f160c71 7f160cf1 00000000 00000000 00000000 0012 70000600 0000000a 00000000 29000000 0000"), Response,
			"SCSI Response itt 0x1eb483e5 status CHECK CONDITION sense UNIT ATTENTION, POWER ON, RESET, OR BUS DEVICE RESET OCCURRED statsn 1 expcmdsn 2132151409 maxcmdsn 2132151537 length 20 final"},
		"Data-In with status": {header("25830000 00000062 00000000 00000000 1eb483e9 ffffffff 00000005 7f160c75 7f160cf5 00000000 00000000 0000009d"), DataIn,
			"SCSI Data-In itt 0x1eb483e9 status GOOD number 0 offset 0 underflow 157 statsn 5 expcmdsn 2132151413 maxcmdsn 2132151541 length 98 final"},
		"R2T": {header("31800000 00000000 00010000 00000000 1eb483f2 20f58a58 0000000e 7f160c7e 7f160cfe 00000000 00002000 00016000"), R2T,
			"R2T itt 0x1eb483f2 ttt 0x20f58a58 lun 1 number 0 offset 8192 desired 90112 expcmdsn 2132151422 maxcmdsn 2132151550 length 0 final"},
		"Data-Out": {header("05000000 00002000 00010000 00000000 1eb483f2 20f58a58 00000000 0000000f 00000000 00000000 00002000 00000000"), DataOut,
			"SCSI Data-Out itt 0x1eb483f2 ttt 0x20f58a58 number 0 offset 8192 expstatsn 15 length 8192"},
		"ping": {header("40800000 00000000 00000000 00000000 41000000 ffffffff 00000040 00000041 00000000 00000000 00000000 00000000"), NOP,
			"NOP-Out itt 0x41000000 cmdsn 64 expstatsn 65 length 0 immediate final"},
		"login": {header("43870000 0000018b 80e2d6f3 00000000 7bfe8482 00000000 61be5b39 00000001 00000000 00000000 00000000 00000000"), Login,
			"Login Request itt 0x7bfe8482 stage 1 to 3 cmdsn 1639865145 expstatsn 1 length 395 immediate final"},
		"login refused": {header("23040000 00000000 00000000 00000000 39a2c7e5 00000000 00000000 00000000 00000000 02030000 00000000 00000000"), Login,
			"Login Response itt 0x39a2c7e5 stage 1 result 0x0203 statsn 0 expcmdsn 0 maxcmdsn 0 length 0"},
		"text": {header("44800000 00000010 00000000 00000000 7bfe8483 ffffffff 61be5b39 00000001 00000000 00000000 00000000 00000000"), Text,
			"Text Request itt 0x7bfe8483 cmdsn 1639865145 expstatsn 1 length 16 immediate final"},
		"logout": {header("46800000 00000000 00000000 00000000 18000000 00000000 00000094 00000097 00000000 00000000 00000000 00000000"), Logout,
			"Logout Request itt 0x18000000 reason 0 cmdsn 148 expstatsn 151 length 0 immediate final"},
		"Reject": {header("3f800200 00000030 00000000 00000000 ffffffff 00000000 b2b71d3c 00000004 00000043 00000000 00000000 00000000"), Reject,
			"Reject reason 2 statsn 2998345020 expcmdsn 4 maxcmdsn 67 length 48 final"},
		"two NOPs": {header(strings.Repeat("40800000 00000000 00000000 00000000 41000000 ffffffff 00000040 00000041 00000000 00000000 00000000 00000000", 2)), NOP,
			"NOP-Out itt 0x41000000 cmdsn 64 expstatsn 65 length 0 immediate final; NOP-Out itt 0x41000000 cmdsn 64 expstatsn 65 length 0 immediate final"},
		"data":             {bytes.Repeat([]byte("abcd"), 30), Data, ""},
		"zeros":            {make([]byte, 120), Data, ""},
		"half of a header": {header("40800000 00000000 00000000 00000000 41000000 ffffffff"), Data, ""},
		"an FPDU":          {tagged(wire.TaggedFields{Opcode: wire.OpWrite}, 60), Data, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var r reader
			l := r.read(captured(frame(t, wire.HeaderFields{}, seg, c.payload)), true)
			want := fmt.Sprintf(", length %d", len(c.payload))
			if c.text != "" {
				want += ": " + c.text
			}
			if got := text(l, false); !strings.HasSuffix(got, want) || l.Kind != c.kind || l.RDMA != nil {
				t.Errorf("%s:\n%s, want %s\n%s", l.Kind, got, c.kind, want)
			}
			// the connection of another protocol has no PDUs
			if l := r.read(captured(frame(t, wire.HeaderFields{}, seg, c.payload)), false); l.ISCSI != nil {
				t.Errorf("a PDU in a connection of RDMA: %s", text(l, false))
			}
		})
	}
}

// octets reads hexadecimal digits with spaces between them.
func octets(t testing.TB, text string) (b []byte) {
	t.Helper()
	text = strings.ReplaceAll(text, " ", "")
	_, err := fmt.Sscanf(text, "%x", &b)
	rig.Must(t, err)
	return b
}

// TestPDUsOfCaptures compares the PDUs that are found in each segment of each captured
// connection with those that begin there, if the connection is read from its first octet
// on: none is missing, and none is too many.
func TestPDUsOfCaptures(t *testing.T) {
	found := 0
	for name, c := range captures.ISCSI(t) {
		// the target's answers say which digests there are
		answers := c.Server.Bytes()
		use := pdu.Digests{Header: bytes.Contains(answers, []byte("HeaderDigest=CRC32C\x00")), Data: bytes.Contains(answers, []byte("DataDigest=CRC32C\x00"))}
		for _, d := range []captures.Stream{c.Client, c.Server} {
			found += compare(t, name, d, use)
		}
	}
	if found < 1000 {
		t.Errorf("only %d PDUs found", found)
	}
}

// start is a PDU that begins somewhere in a stream.
type start struct {
	header *pdu.Header
	length int
}

// compare checks one direction of a connection and returns the number of PDUs.
func compare(t *testing.T, name string, d captures.Stream, agreed pdu.Digests) (found int) {
	starts := map[int]start{} // by offset
	whole := d.Bytes()
	for at := 0; at+pdu.HeaderLen <= len(whole); {
		h := (*pdu.Header)(whole[at:])
		use := agreed
		if h.Opcode() == pdu.OpLogin || h.Opcode() == pdu.OpLoginResponse {
			use = pdu.Digests{}
		}
		starts[at] = start{h, use.Len(h)}
		at += use.Len(h)
	}
	at := 0
	for _, segment := range d.Segments {
		got, _ := parsePDUs(segment)
		want := startsIn(starts, at, len(segment))
		if !slices.EqualFunc(got, want, func(a PDU, b start) bool {
			return a.Name == b.header.Opcode().String() && a.ITT == tag(b.header.InitiatorTaskTag())
		}) {
			t.Errorf("%s: segment at %d: %d PDUs found, %d begin there", name, at, len(got), len(want))
		}
		found, at = found+len(got), at+len(segment)
	}
	return found
}

// startsIn returns the PDUs whose headers lie in a segment, one behind the other, if the
// first begins with the segment.
func startsIn(starts map[int]start, at, n int) (want []start) {
	for end := at + n; at+pdu.HeaderLen <= end; {
		p, ok := starts[at]
		if !ok || !p.header.Plausible() {
			break
		}
		want, at = append(want, p), at+p.length
	}
	return want
}

// TestTsharkAgrees: for each captured packet that begins with a PDU, tshark names the
// same PDU and the same tag.
func TestTsharkAgrees(t *testing.T) {
	need.Tool(t, "tshark")
	agrees := 0
	for _, name := range []string{"tgtd-discovery", "tgtd-digests", "tgtd-chap", "tgtd-qemu-rw", "oi-tgtd-digests", "oi-lio-digests", "oi-lio-chap"} {
		file := filepath.Join("..", "..", "..", "..", "test", "testdata", "captures", "iscsi", name+".pcap")
		judged := tshark(t, file)
		for i, l := range lines(t, file) {
			if len(l.ISCSI) == 0 {
				continue
			}
			if first, _, _ := strings.Cut(judged[i+1], ","); first != named(l.ISCSI[0]) {
				t.Errorf("%s: frame %d: %s, and tshark says %q", name, i+1, named(l.ISCSI[0]), judged[i+1])
			} else {
				agrees++
			}
		}
	}
	if agrees < 400 {
		t.Errorf("tshark has judged only %d packets", agrees)
	}
}

// named returns opcode and tag as tshark writes them.
func named(p PDU) string {
	for op := range pdu.Opcode(0x40) {
		if op.String() == p.Name {
			itt := p.ITT
			if itt == "" {
				itt = "0xffffffff"
			}
			return fmt.Sprintf("0x%02x %s", uint8(op), itt)
		}
	}
	return p.Name
}

// tshark returns opcodes and tags by the number of the frame.
func tshark(t *testing.T, file string) map[int]string {
	t.Helper()
	out, err := exec.Command("tshark", "-r", file, "-o", "tcp.desegment_tcp_streams:FALSE", "-Y", "iscsi", "-T", "fields",
		"-e", "frame.number", "-e", "iscsi.opcode", "-e", "iscsi.initiatortasktag").Output()
	rig.Must(t, err)
	all := map[int]string{}
	for line := range strings.Lines(string(out)) {
		var number int
		var opcodes, tags string
		if _, err := fmt.Sscan(line, &number, &opcodes, &tags); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		first, _, _ := strings.Cut(opcodes, ",")
		tag, _, _ := strings.Cut(tags, ",")
		all[number] = first + " " + tag
	}
	return all
}

// lines reads the packets of a file as an engine would hand them over.
func lines(t *testing.T, file string) (all []Line) {
	t.Helper()
	in, err := os.Open(file)
	rig.Must(t, err)
	defer in.Close()
	packets, err := pcapgo.NewReader(in)
	rig.Must(t, err)
	var r reader
	for {
		data, _, err := packets.ReadPacketData()
		if err == io.EOF {
			return all
		}
		rig.Must(t, err)
		p := captured(data)
		p.Data = p.Data[:min(len(p.Data), HeadLen)]
		all = append(all, r.read(p, true))
	}
}

// TestLearn: a flow is one of iSCSI from its stream on, and it gets no MPA handshake. A
// later flow with the same id is another one.
func TestLearn(t *testing.T) {
	s := &source{streams: map[uint32]report.Stream{}, iscsi: map[uint32]bool{}}
	s.learn(report.Stream{Flow: 5, Kind: report.ISCSI}, true)
	if len(s.streams) != 0 || !s.iscsi[5] {
		t.Errorf("handshakes for %v, iSCSI %v", s.streams, s.iscsi)
	}
	s.learn(report.Stream{Flow: 5, Revision: 2}, true)
	if len(s.iscsi) != 0 || s.streams[5].Revision != 2 {
		t.Errorf("handshakes for %v, iSCSI %v", s.streams, s.iscsi)
	}
	for i := range uint32(maxISCSI + 1) {
		s.learn(report.Stream{Flow: i, Kind: report.ISCSI}, false)
	}
	if len(s.iscsi) > maxISCSI {
		t.Errorf("%d streams are remembered", len(s.iscsi))
	}
}
