package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/dump"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// TestDumpISCSI: a dump names the PDUs of a session with tgtd, with and without digests,
// and tshark finds the same opcodes in the file that another dump writes.
func TestDumpISCSI(t *testing.T) {
	need.Tool(t, "tshark")
	for _, digest := range []string{"None", "CRC32C"} {
		t.Run(digest, func(t *testing.T) {
			p := netns.XDPPair(t, pair.Config{})
			target := tgtd.Start(t, p, pair.B, tgtd.Config{Keys: map[string]string{"HeaderDigest": digest, "DataDigest": digest}})
			var a *rdma.Adapter
			netns.In(t, p, pair.A, func() (err error) {
				a, err = rdma.Open(rdma.Config{Ports: []string{p.Ends[pair.A].Name}})
				return err
			})
			t.Cleanup(func() { rig.Check(t, a.Close()) })
			file := filepath.Join(t.TempDir(), "x.pcapng")
			text, written := dumping(t, 1, append(own, "--json")...), dumping(t, 1, append(own, "-w", file)...)
			d, err := iscsi.Dial(rig.Context(t), target.URL(""), iscsi.Config{Adapter: a, HeaderDigest: digest != "None", DataDigest: digest != "None", RequireR2T: true, NoImmediateData: true})
			rig.Must(t, err)
			b := make([]byte, 64<<10)
			_, err = d.WriteAt(b, 0)
			rig.Must(t, err)
			_, err = d.ReadAt(b[:4096], 0)
			rig.Must(t, err)
			rig.Must(t, d.Sync())
			text.until("SYNCHRONIZE CACHE")
			rig.Must(t, d.Close())
			text.until("Logout Response")
			compareDumps(t, text.interrupt(), file, written)
		})
	}
}

// compareDumps counts the PDUs in the lines of one dump, and the packets of tshark with
// iSCSI in the file of the other.
func compareDumps(t *testing.T, lines, file string, written *running) {
	t.Helper()
	quiet(t, file)
	written.interrupt()
	kinds, commands := map[dump.Kind]int{}, map[string]bool{}
	for line := range strings.Lines(lines) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		schema(t, "dump", line)
		var l dump.Line
		rig.Must(t, json.Unmarshal([]byte(line), &l))
		for _, p := range l.ISCSI {
			name, _, _ := strings.Cut(p.Command, " lba")
			commands[name] = true
		}
		if len(l.ISCSI) != 0 {
			kinds[l.Kind]++
		}
		if l.RDMA != nil {
			t.Errorf("RDMA in a session of iSCSI: %s", line)
		}
	}
	for _, k := range []dump.Kind{dump.Command, dump.Response, dump.DataIn, dump.DataOut, dump.R2T, dump.Logout} {
		if kinds[k] == 0 {
			t.Errorf("no %s: %v", k, kinds)
		}
	}
	for _, c := range []string{"READ(10)", "WRITE(10)", "SYNCHRONIZE CACHE(10)"} {
		if !commands[c] {
			t.Errorf("no %s: %v", c, commands)
		}
	}
	judged := map[string]int{}
	for _, row := range fields(t, file, "iscsi.opcode", "frame.comment") {
		if strings.HasPrefix(row[1], "not captured") {
			t.Errorf("a made-up packet in a session of iSCSI: %q", row[1])
		}
		for op := range strings.SplitSeq(row[0], ",") {
			judged[op]++
		}
	}
	for _, op := range []string{"0x01", "0x05", "0x06", "0x21", "0x25", "0x26", "0x31"} {
		if judged[op] == 0 {
			t.Errorf("tshark finds no opcode %s: %v", op, judged)
		}
	}
}
