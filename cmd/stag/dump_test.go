package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/dump"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// TestDumpFile: tshark reads a file that was written while connections began, worked and ended. Nothing is malformed,
// every checksum and CRC is good, both directions have every kind of message, and comments name the device and the
// connection.
func TestDumpFile(t *testing.T) {
	need.Tool(t, "tshark")
	u := newDumpUsers(t)
	x, y := u.connect() // this connection is open before the capture begins
	file := filepath.Join(t.TempDir(), "x.pcapng")
	d := dumping(t, 1, append(own, "-i", u.name(pair.A), "-w", file)...)
	v, w := u.connect()
	u.talk(x, y)
	u.talk(v, w)
	u.talk(w, v)
	u.offend(v, w)
	quiet(t, file)
	contains(t, d.interrupt(), " packets captured, 0 lost")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	comment := regexp.MustCompile(`^(in|out) queue 0 flow 0x[0-9a-f]+ qp (\d+)$`)
	messages, handshakes := map[string]int{}, 0
	for i, row := range fields(t, file, "frame.interface_name", "frame.packet_flags_direction", "frame.comment", "iwarp_rdma.opcode",
		"_ws.malformed", "tcp.checksum.status", "ip.checksum.status", "eth.src", "tcp.analysis.lost_segment", "frame.interface_queue") {
		in := row[7] != u.p.Ends[pair.A].MAC.String()
		way := map[bool]string{true: "0x00000001", false: "0x00000002"}[in]
		if row[0] != u.name(pair.A) || row[1] != way || row[4] != "" || row[5] != "1" || row[6] != "1" || row[8] != "" || row[9] != "0" {
			t.Errorf("packet %d: %q", i+1, row)
		}
		if strings.HasPrefix(row[2], "not captured: stands for the MPA ") {
			handshakes++
			continue
		}
		if row[2] == "in queue 0" && row[3] == "" {
			continue // an acknowledgement that arrived after its flow had ended
		}
		m := comment.FindStringSubmatch(row[2])
		if m == nil || (m[1] == "in") != in {
			t.Errorf("packet %d: %q", i+1, row[2])
			continue
		}
		for _, op := range strings.Split(row[3], ",") {
			messages[fmt.Sprintf("%s qp %s %s", m[1], m[2], op)]++
		}
	}
	if handshakes != 4 {
		t.Errorf("%d packets stand for handshakes, want 4", handshakes)
	}
	for _, want := range []string{"out qp %d 0x00", "out qp %d 0x01", "in qp %d 0x02", "out qp %d 0x03"} {
		for _, qp := range []*rdma.QP{x.qp, v.qp} {
			if messages[fmt.Sprintf(want, qp.Number())] == 0 {
				t.Errorf("no %s in %v", fmt.Sprintf(want, qp.Number()), messages)
			}
		}
	}
	for _, want := range []string{"in qp %d 0x00", "in qp %d 0x01", "out qp %d 0x02", "in qp %d 0x03", "in qp %d 0x07"} {
		if messages[fmt.Sprintf(want, v.qp.Number())] == 0 {
			t.Errorf("no %s in %v", fmt.Sprintf(want, v.qp.Number()), messages)
		}
	}
	out, err := exec.Command("tshark", "-r", file, "-n", "--disable-protocol", "rpcordma", "-O", "iwarp_mpa").Output()
	rig.Must(t, err)
	fpdus, good := strings.Count(string(out), "ULPDU length"), strings.Count(string(out), "(Good CRC32)")
	if fpdus != good || fpdus < 20 || strings.Contains(string(out), "Malformed") {
		t.Errorf("%d FPDUs, of which %d have a good CRC", fpdus, good)
	}
	stats, err := exec.Command("capinfos", "-T", "-r", "-c", file).Output()
	if err == nil { // tshark is not installed on every machine
		t.Logf("capinfos: %s", stats)
	}
}

// TestDumpLive: tshark reads packets while the capture is still running.
func TestDumpLive(t *testing.T) {
	need.Tool(t, "tshark")
	u := newDumpUsers(t)
	r, w, err := os.Pipe()
	rig.Must(t, err)
	tshark := exec.Command("tshark", "-l", "-n", "--disable-protocol", "rpcordma", "-r", "-")
	tshark.Stdin = r
	seen := launch(t, tshark)
	r.Close()
	cmd, notes := piped(t, w, append([]string{"-w", "-", "-i", u.name(pair.A)}, own...)...)
	x, y := u.connect()
	for range 3 {
		u.talk(x, y)
		for _, word := range []string{"Write [last DDP", "Read Response [last DDP", "Send [last DDP"} {
			seen.until(word)
		}
	}
	rig.Must(t, cmd.Process.Signal(os.Interrupt))
	contains(t, notes.rest(0), " packets captured, 0 lost")
	seen.all(0)
}

// dumpMasks are the volatile parts of a line that mask does not cover.
var dumpMasks = []struct {
	volatile *regexp.Regexp
	mask     string
}{
	{regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{6}`), "TIME"},
	{regexp.MustCompile(`flow 0x[0-9a-f]+`), "flow ID"},
	{regexp.MustCompile(`:\d+( >|: )`), ":PORT$1"},
	{regexp.MustCompile(`seq \d+(:\d+)?`), "seq SEQ"},
	{regexp.MustCompile(`ack \d+`), "ack ACK"},
	{regexp.MustCompile(`win \d+`), "win N"},
	{regexp.MustCompile(`TS val \d+ ecr \d+`), "TS val N ecr N"},
	{regexp.MustCompile(`\((\S+)\.test\)`), "(PROGRAM)"},
	{regexp.MustCompile(`(?m)^stag: dump: capturing on .*$`), "stag: dump: capturing on veth-a of pid PID (PROGRAM)"},
}

// once leaves out retransmissions. An engine that a busy machine stops for a few milliseconds sends some.
func once(text string) string {
	var kept strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		m := segmentOf.FindStringSubmatch(line)
		if m == nil || !seen[m[1]+m[2]] {
			kept.WriteString(line)
		}
		if m != nil {
			seen[m[1]+m[2]] = true
		}
	}
	return kept.String()
}

// segmentOf is what a segment and its retransmissions have in common: the ends, and the octets' sequence numbers.
var segmentOf = regexp.MustCompile(`(IP \S+ > \S+) Flags \S+ (seq [\d:]+)`)

// TestDumpText: each packet of every kind has a line, and --kind selects kinds.
func TestDumpText(t *testing.T) {
	u := newDumpUsers(t)
	x, y := u.connect()
	args := append(own, "-i", u.name(pair.A))
	// The set of segments that are acknowledged at once differs between runs.
	all := dumping(t, 1, append(args, "--kind", "write,read-request,read-response,send,terminate")...)
	acks := dumping(t, 1, append(args, "--kind", "ack", "-c", "1", "--json")...)
	u.talk(x, y)
	u.offend(x, y)
	all.until(": Terminate ")
	text := mask(once(all.interrupt()))
	for _, m := range dumpMasks {
		text = m.volatile.ReplaceAllString(text, m.mask)
	}
	text = regexp.MustCompile(`\d+ packets captured`).ReplaceAllString(text, "N packets captured")
	// The time at which the empty Write to a silent peer is sent differs between runs.
	text = regexp.MustCompile(`(?m)^.* RDMA Write stag STAG offset 0 length 0 last\n`).ReplaceAllString(text, "")
	golden(t, "dump", text)
	for line := range strings.Lines(acks.all(0)) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var l dump.Line
		rig.Must(t, json.Unmarshal([]byte(line), &l))
		if l.Kind != dump.Ack || l.TCP == nil || l.TCP.Length != 0 {
			t.Errorf("%s", line)
		}
	}
}

// TestDumpJSON: each packet is a JSON object that matches the schema.
func TestDumpJSON(t *testing.T) {
	u := newDumpUsers(t)
	x, y := u.connect()
	d := dumping(t, 2, append(own, "--json")...)
	u.talk(x, y)
	u.offend(x, y)
	d.until(`"operation":"Terminate"`)
	kinds := map[dump.Kind]int{}
	for line := range strings.Lines(d.interrupt()) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		schema(t, "dump", line)
		var l dump.Line
		rig.Must(t, json.Unmarshal([]byte(line), &l))
		kinds[l.Kind]++
		if l.PID != os.Getpid() || l.Device != u.name(pair.A) && l.Device != u.name(pair.B) || l.Flow != 0 && l.QP == 0 {
			t.Errorf("%s", line)
		}
	}
	for _, k := range []dump.Kind{dump.Write, dump.ReadRequest, dump.ReadResponse, dump.Send, dump.Terminate, dump.Ack} {
		if kinds[k] == 0 {
			t.Errorf("no %s: %v", k, kinds)
		}
	}
}

// TestDumpFilters: dump can select a QP, a flow, a number of packets and the first octets of each packet. Several dumps
// at the same time do not disturb each other.
func TestDumpFilters(t *testing.T) {
	need.Tool(t, "tshark")
	u := newDumpUsers(t)
	x, y := u.connect()
	v, w := u.connect()
	dir := t.TempDir()
	base := append(own, "-i", u.name(pair.A))
	file := func(name string) string { return filepath.Join(dir, name) }
	qp := fmt.Sprint(x.qp.Number())
	dumps := map[string]*running{}
	for name, args := range map[string]string{
		"all": "", "bare": "--bare", "qp": "--qp " + qp, "writes": "--kind write --bare", "short": "-s 60 --bare",
	} {
		dumps[name] = dumping(t, 1, append(append(base[:len(base):len(base)], "-w", file(name)), strings.Fields(args)...)...)
	}
	few := dumping(t, 1, append(base[:len(base):len(base)], "-w", file("few"), "-c", "3", "--bare")...)
	u.talk(x, y)
	u.talk(v, w)
	contains(t, few.all(0), "3 packets captured, 0 lost")
	for name, d := range dumps {
		quiet(t, file(name))
		contains(t, d.interrupt(), " packets captured, 0 lost")
	}
	few3 := fields(t, file("few"), "frame.number")
	stands := 0
	rows := map[string][][]string{}
	for name := range dumps {
		for _, row := range fields(t, file(name), "frame.comment", "frame.cap_len", "frame.len") {
			n, err := strconv.Atoi(row[2])
			rig.Must(t, err)
			if strings.HasPrefix(row[0], "not captured") {
				stands++
			} else if n > 90 { // the number of acknowledgements differs between runs
				rows[name] = append(rows[name], row)
			}
		}
	}
	ofQP := 0
	for _, row := range rows["all"] {
		if strings.HasSuffix(row[0], " qp "+qp) {
			ofQP++
		}
	}
	if len(few3) != 3 || stands != 4+2 || len(rows["all"]) != len(rows["bare"]) || len(rows["short"]) != len(rows["bare"]) || len(rows["qp"]) != ofQP || ofQP == 0 || len(rows["writes"]) != 8 {
		t.Fatalf("%d few, %d in all, %d bare, %d short, %d of the QP which has %d, %d writes, %d handshakes",
			len(few3), len(rows["all"]), len(rows["bare"]), len(rows["short"]), len(rows["qp"]), ofQP, len(rows["writes"]), stands/2)
	}
	for i, row := range rows["short"] {
		if row[1] != "60" || row[2] != rows["bare"][i][2] {
			t.Errorf("packet %d: %s of %s octets", i+1, row[1], row[2])
		}
	}
}

// TestDumpRefused: dump prints one line if it cannot capture what the options select.
func TestDumpRefused(t *testing.T) {
	one := func(r result, words ...string) {
		t.Helper()
		r.ends(t, exitFailed)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: dump: ") {
			t.Errorf("printed %q and %q, want one line", r.stdout, r.stderr)
		}
		contains(t, r.stderr, words...)
	}
	h := newHost(t)
	if os.Geteuid() == 0 {
		h.act("well") // an engine of another user runs at the same time
	}
	asGuest := func(args ...string) *exec.Cmd {
		cmd := h.at(command(t, append([]string{"dump"}, args...)...))
		if os.Geteuid() == 0 {
			as(cmd)
		}
		return cmd
	}
	one(run(t, asGuest()), "no engine runs for this user")
	one(run(t, asGuest("-p", "1")), "process 1 has no adapter")
	kept := filepath.Join(h.dir, "kept")
	rig.Must(t, os.WriteFile(kept, []byte("x"), 0o666))
	one(run(t, asGuest("-w", kept)), "no engine runs for this user")
	if text, err := os.ReadFile(kept); string(text) != "x" {
		t.Errorf("the file has become %q, %v, although there was nothing to capture", text, err)
	}

	t.Run("engines", func(t *testing.T) {
		u := newDumpUsers(t)
		x, _ := u.connect()
		for args, says := range map[string]string{
			"-i eth77":         "no engine has device eth77: there is " + u.name(pair.A),
			"--flow 0x7ff0000": "no flow 0x7ff0000",
			"--qp 99999":       "no QP 99999",
			fmt.Sprintf("--qp %d -i %s --flow 1", x.qp.Number(), u.name(pair.A)): "not 0x1",
		} {
			one(run(t, command(t, append(append([]string{"dump"}, own...), strings.Fields(args)...)...)), says)
		}
	})
	t.Run("file", func(t *testing.T) {
		newDumpUsers(t)
		for name, says := range map[string]string{"/nowhere/x": "no such file or directory", "/": "is a directory"} {
			r := run(t, command(t, append([]string{"dump", "-w", name}, own...)...))
			r.ends(t, exitFailed)
			contains(t, r.stderr, "stag: dump: open "+name+": "+says)
		}
	})
	t.Run("kernel port", func(t *testing.T) {
		a, err := rdma.Open(rdma.Config{KernelPort: true})
		rig.Must(t, err)
		defer a.Close()
		one(run(t, command(t, append([]string{"dump"}, own...)...)), "so use tcpdump")
	})
}

// TestDumpNotAllowed: other users cannot capture from the engines of root.
func TestDumpNotAllowed(t *testing.T) {
	newDumpUsers(t)
	r := run(t, as(command(t, append([]string{"dump", "--all-users"}, own...)...)))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "run as root")
	if r.stdout != "" {
		t.Errorf("printed %q", r.stdout)
	}
}

// TestDumpUsage: a wrong command line gives one line and exit code 2.
func TestDumpUsage(t *testing.T) {
	for args, says := range map[string]string{
		"eth1":                 `"eth1"`,
		"--interface=":         "name of an interface",
		"-p 0":                 "-p 0",
		"-p one":               "one",
		"--write=":             "name of a file",
		"-w x --json":          "choose one",
		"-s 100":               "give -w too",
		"--bare":               "give -w too",
		"-w x -s -1":           "choose 1 to 262144",
		"-w x -s 262145":       "choose 1 to 262144",
		"-c 0":                 "choose 1 or more",
		"-c -1":                "-1",
		"--qp 0":               "number of a QP",
		"--flow 0":             "id of a flow",
		"--flow first":         "id of a flow",
		"--flow 0x1ffffffff":   "id of a flow",
		"--kind reads":         "choose of write,read-request,",
		"--kind=":              "choose of write",
		"--loud":               "--loud",
		"-p 3 --kind write,,x": `no kind ""`,
	} {
		r := run(t, command(t, append([]string{"dump"}, strings.Fields(args)...)...))
		r.ends(t, exitUsage)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: dump: ") || !strings.Contains(r.stderr, says) {
			t.Errorf("%q printed %q and %q, want one line of error that says %q", args, r.stdout, r.stderr, says)
		}
	}
	if files, err := filepath.Glob("/x"); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// TestDumpTerminal: dump does not write binary to a terminal.
func TestDumpTerminal(t *testing.T) {
	_, program := newTerminal(t)
	cmd := command(t, "dump", "-w", "-")
	var says bytes.Buffer
	cmd.Stdout, cmd.Stderr = program, &says
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(says.String(), "terminal") {
		t.Errorf("exit code %d, %q", code, says.String())
	}
}
