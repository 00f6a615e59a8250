package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
)

// dump is a capture by dumpcap of everything that passes one side's end.
type dump struct {
	file string
	cmd  *exec.Cmd
	says *bufio.Reader
}

// captureOctets is the size of the kernel's buffer for a capture. It is larger than what any of these tests sends, so
// that no packet is lost while dumpcap does not read.
const captureOctets = 512 << 20

// dumpAt starts a capture on a side, and returns when it runs.
func (r *rig) dumpAt(side pair.Side) *dump {
	r.Helper()
	need.Tool(r, "dumpcap", "tshark")
	d := &dump{file: filepath.Join(r.TempDir(), "capture.pcapng")}
	d.cmd = exec.Command("dumpcap", "-q", "-i", r.pair.Ends[side].Name, "-f", "tcp", "-w", d.file,
		"-B", strconv.Itoa(captureOctets>>20))
	out, err := d.cmd.StderrPipe()
	r.Must(err)
	d.says = bufio.NewReader(out)
	r.in(side, d.cmd.Start)
	r.Cleanup(func() { d.cmd.Process.Kill(); d.cmd.Wait() })
	said, err := d.until("File: ")
	if err != nil {
		r.Fatalf("dumpcap does not begin: %v: %s", err, said)
	}
	return d
}

// until reads dumpcap's output up to a line that contains mark.
func (d *dump) until(mark string) (said string, err error) {
	for {
		line, err := d.says.ReadString('\n')
		said += line
		if strings.Contains(line, mark) || err != nil {
			return said, err
		}
	}
}

// settled waits until dumpcap has written everything. At its end dumpcap drops what is in its buffer.
func (d *dump) settled(r *rig) {
	r.Helper()
	const quiet = 750 * time.Millisecond // dumpcap looks for packets every 250 ms
	size, since := int64(-1), time.Now()
	r.Eventually("the capture is written", func() bool {
		now, err := os.Stat(d.file)
		r.Must(err)
		if now.Size() != size {
			size, since = now.Size(), time.Now()
		}
		return time.Since(since) > quiet
	})
}

// end ends the capture and checks that it is complete.
func (d *dump) end(r *rig) {
	r.Helper()
	d.settled(r)
	r.Must(d.cmd.Process.Signal(os.Interrupt))
	said, err := d.until("Packets received/dropped")
	if err != nil {
		r.Fatalf("dumpcap ends without its count: %v: %s", err, said)
	}
	io.Copy(io.Discard, d.says)
	r.Must(d.cmd.Wait())
	var got, missed int
	_, tail, _ := strings.Cut(said, "': ")
	if _, err := fmt.Sscanf(tail, "%d/%d", &got, &missed); err != nil || got == 0 || missed != 0 {
		r.Fatalf("the capture is not complete: %s", strings.TrimSpace(said))
	}
}

// serious are tshark's remarks that neither side may cause on a link without loss. The others are counted.
var (
	serious = []string{
		"retransmission", "fast_retransmission", "spurious_retransmission",
		"out_of_order", "lost_segment", "ack_lost_segment", "reused_ports",
	}
	remarks = append(serious[:len(serious):len(serious)], "duplicate_ack", "zero_window", "zero_window_probe",
		"window_full", "window_update", "keep_alive")
)

// finding is tshark's result for the segments that one side sent: their number, the number with a wrong or unchecked
// checksum, and the number with remarks.
//
// Linux writes a checksum of 0 as 0xffff, which is the same number in ones' complement. tshark complains about that.
// stag does not write 0xffff.
type finding struct {
	segments, bad, negativeZero, unverified int
	remarks                                 map[string]int
}

// read lets tshark check the segments of a capture that are later than after. The earlier segments only give tshark the
// context of the connection.
func (d *dump) read(r *rig, after time.Time) (found [2]finding) {
	r.Helper()
	// The payload is noise. Sometimes it looks like a protocol whose messages tshark would reassemble without end.
	args := []string{"-r", d.file, "-n", "-T", "fields", "-E", "separator=,",
		"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-o", "tcp.desegment_tcp_streams:FALSE",
		"-e", "frame.time_epoch", "-e", "eth.src", "-e", "ip.checksum.status", "-e", "tcp.checksum.status", "-e", "tcp.checksum"}
	for _, name := range remarks {
		args = append(args, "-e", "tcp.analysis."+name)
	}
	tshark := exec.Command("tshark", args...)
	said := new(strings.Builder)
	tshark.Stderr = said
	out, err := tshark.StdoutPipe()
	r.Must(err)
	r.Must(tshark.Start())
	for side := range found {
		found[side].remarks = map[string]int{}
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		columns := strings.Split(lines.Text(), ",")
		at, err := strconv.ParseFloat(columns[0], 64)
		r.Must(err)
		if at < float64(after.UnixMicro())/1e6 {
			continue
		}
		side := ours
		if columns[1] == r.pair.Ends[theirs].MAC.String() {
			side = theirs
		}
		found[side].add(columns[2:])
	}
	if err := tshark.Wait(); err != nil {
		r.Fatalf("tshark: %v: %s", err, said)
	}
	return found
}

// add counts one segment with tshark's verdicts on its checksums, and with its remarks. IPv6 has no header checksum.
func (f *finding) add(columns []string) {
	const bad, good = "0", "1"
	f.segments++
	switch ip, tcp, sum := columns[0], columns[1], columns[2]; {
	case tcp == bad && sum == "0xffff":
		f.negativeZero++
	case ip == bad || tcp == bad:
		f.bad++
	case (ip != good && ip != "") || tcp != good:
		f.unverified++
	}
	for i, name := range remarks {
		if columns[3+i] != "" {
			f.remarks[name]++
		}
	}
}

// complaints returns the remarks that must not occur.
func (f *finding) complaints(side pair.Side) (list []string) {
	for _, name := range serious {
		if n := f.remarks[name]; n != 0 {
			list = append(list, fmt.Sprintf("%d times %s", n, name))
		}
	}
	if side == ours {
		f.bad += f.negativeZero
	}
	if f.bad != 0 || f.unverified != 0 {
		list = append(list, fmt.Sprintf("%d wrong checksums, %d not verified", f.bad, f.unverified))
	}
	return list
}
