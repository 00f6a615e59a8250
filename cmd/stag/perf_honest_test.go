package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/test/rig"
)

// perfRowOf matches a row of figures for messages of 1000 octets.
var perfRowOf = regexp.MustCompile(`(?m)^ 1000 +(\d+) +(\d+\.\d+) +(\d+\.\d+) .*$`)

// TestPerfServerPeak: a server that sends nothing prints the peak that the client has measured. If the client has not
// measured a peak, the server prints none.
func TestPerfServerPeak(t *testing.T) {
	for args, look := range map[string]bool{"": true, "-N": false} {
		e := perfOnLoopback(t, "write_bw", "-n", "100", "-s", "1000", "-q", "4", "--report_gbits")
		answer := e.call(strings.Fields(args)...)
		answer.ends(t, 0)
		served := perfRowOf.FindStringSubmatch(e.server.all(0))
		called := perfRowOf.FindStringSubmatch(answer.stdout)
		if served == nil || called == nil {
			t.Fatalf("no rows: %q, %q", served, called)
		}
		if served[2] != called[2] || (called[2] != "0.00" && called[2] != "0.000000") != look {
			t.Errorf("with %q the peak is %s at the server and %s at the client", args, served[2], called[2])
		}
	}
}

// TestPerfLatencyOfServer: the server of write_lat and of send_lat prints a row of its own. The server of read_lat prints
// no row.
func TestPerfLatencyOfServer(t *testing.T) {
	for test, rows := range map[perf.Test]int{perf.WriteLat: 1, perf.SendLat: 1, perf.ReadLat: 0} {
		e := perfOnLoopback(t, string(test), "-n", "50", "-s", "1000")
		e.call().ends(t, 0)
		said := e.server.all(0)
		got := perfRowOf.FindAllStringSubmatch(said, -1)
		if len(got) != rows || rows == 1 && got[0][1] != "49" || strings.Contains(said, "t_typical") != (rows == 1) {
			t.Errorf("%s: the server said\n%s", test, said)
		}
	}
}

// TestPerfInterruptedInMargin: Ctrl-C in the margin at the beginning leaves the row of what has been measured.
func TestPerfInterruptedInMargin(t *testing.T) {
	for _, test := range []string{"write_lat", "write_bw"} {
		e := perfOnLoopback(t, test, "-D", "1000", "-s", "1000")
		client := launch(t, e.client())
		client.until(" #bytes")
		time.Sleep(time.Second) // one second of a margin of 250 s
		rig.Must(t, client.cmd.Process.Signal(os.Interrupt))
		said := client.all(exitFailed)
		e.server.rest()
		if len(perfRowOf.FindAllString(said, -1)) != 1 {
			t.Errorf("%s: the client said\n%s", test, said)
		}
	}
}

// TestPerfTakesPerftestsFlags: perf accepts the flags of scripts for perftest in both spellings, and refuses a value
// that would mean another test.
func TestPerfTakesPerftestsFlags(t *testing.T) {
	for _, args := range []string{"-x 3 -m 1024 -i 1 -c RC -S 4", "--gid-index=3 --mtu=4096 --ib-port=1 --connection=RC --sl=15"} {
		e := perfOnLoopback(t, "write_bw", append([]string{"-n", "10"}, strings.Fields(args)...)...)
		e.call().ends(t, 0)
		e.server.all(0)
	}
	for args, says := range map[string]string{
		"-x -1": "-x -1: choose 0 to 255", "-m 1500": "-m 1500: choose 256,", "-m 0": "-m 0: choose",
		"-i 2": "one port: choose 1", "-c UD": "reliable connections only: choose RC", "-S 16": "-S 16: choose 0 to 15",
	} {
		answer := run(t, command(t, append([]string{"perf", "send_lat", "--kernel-port"}, strings.Fields(args)...)...))
		if answer.code != exitUsage || !strings.Contains(answer.stderr, says) {
			t.Errorf("%s: %+v", args, answer)
		}
	}
}

// TestGenericOfCommands: with --generic, ping and perf use an interface in generic mode and say so.
func TestGenericOfCommands(t *testing.T) {
	e := perfAcrossPair(t, "write_bw", "--generic", "-n", "50")
	r := decode[perf.Result](t, e.call("--json"), 0)
	if said := e.server.all(0); !strings.Contains(r.Info.Path, "generic XDP") || !strings.Contains(said, "generic XDP") {
		t.Errorf("the path is %q, and the server said\n%s", r.Info.Path, said)
	}
	p := pingAcrossPair(t, "--generic")
	answer := p.client("-C", "2", "--generic")
	answer.ends(t, 0)
	contains(t, answer.stdout, "generic XDP")
	contains(t, p.server.all(0), "generic XDP")
	for _, args := range []string{"perf write_bw", "ping -s"} {
		answer := run(t, command(t, append(strings.Fields(args), "--kernel-port", "--generic")...))
		if answer.code != exitUsage || !strings.Contains(answer.stderr, "--generic and --kernel-port: choose one") {
			t.Errorf("%s: %+v", args, answer)
		}
	}
}
