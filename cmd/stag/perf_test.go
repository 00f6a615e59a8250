package main

import (
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// perfEnds are a server and the arguments that call it.
type perfEnds struct {
	server *running
	client func(more ...string) *exec.Cmd // returns a client of the server; it must run in the namespace in which call runs commands
	call   func(more ...string) result
	path   string
	pair   *pair.Pair // the pair of namespaces; nil: the loopback
}

// perfOnLoopback starts a server of a test over the kernel's TCP.
func perfOnLoopback(t *testing.T, test string, args ...string) perfEnds {
	t.Helper()
	args = append([]string{"perf", test, "--kernel-port", "-p", freePort(t)}, args...)
	e := perfEnds{server: launch(t, command(t, args...)), path: "kernel port"}
	e.server.until("Waiting for client")
	e.client = func(more ...string) *exec.Cmd {
		return command(t, append(append(slices.Clone(args), more...), "127.0.0.1")...)
	}
	e.call = func(more ...string) result { return run(t, e.client(more...)) }
	return e
}

// perfAcrossPair starts a server of a test on side B, for clients on side A.
func perfAcrossPair(t *testing.T, test string, args ...string) perfEnds {
	t.Helper()
	p := netns.XDPPair(t, pair.Config{})
	at := func(side pair.Side, more ...string) *exec.Cmd {
		return command(t, append(append([]string{"perf", test, "-d", p.Ends[side].Name}, args...), more...)...)
	}
	e := perfEnds{path: "native XDP", pair: p}
	rig.Must(t, p.Do(pair.B, func() error { e.server = launch(t, at(pair.B)); return nil }))
	e.server.until("Waiting for client")
	e.client = func(more ...string) *exec.Cmd { return at(pair.A, append(more, p.Ends[pair.B].V4.Addr().String())...) }
	e.call = func(more ...string) result { return inside(t, p, e.client(more...)) }
	return e
}

var perfPaths = map[string]func(*testing.T, string, ...string) perfEnds{"kernel": perfOnLoopback, "pair": perfAcrossPair}

// TestPerf: every test runs on every path, compares every octet, and prints JSON.
func TestPerf(t *testing.T) {
	for name, serve := range perfPaths {
		for _, test := range perf.Tests {
			t.Run(name+"/"+string(test), func(t *testing.T) {
				e := serve(t, string(test), "-n", "70", "-s", "5000", "--verify")
				answer := e.call("--json")
				schema(t, "perf", answer.stdout)
				r := decode[perf.Result](t, answer, 0)
				if code := e.server.rest(); code != 0 {
					t.Errorf("the server's exit code is %d: %q", code, e.server.said)
				}
				if i := r.Info; i.Test != test || i.Server || !strings.Contains(i.Path, e.path) || !i.CRC || !i.Verified || i.QPs != 1 || len(i.Addresses) != 1 {
					t.Errorf("%+v", i)
				}
				measured(t, r, test.Latency(), 70, 5000)
			})
		}
	}
}

// measured demands one row for each size, with figures that are possible.
func measured(t *testing.T, r perf.Result, latency bool, n uint64, sizes ...int) {
	t.Helper()
	if latency {
		if len(r.Latency) != len(sizes) || r.Bandwidth != nil {
			t.Fatalf("%+v", r)
		}
		for i, l := range r.Latency {
			if l.Size != sizes[i] || l.Iterations != n || l.Min <= 0 || l.Typical < l.Min || l.P99 < l.Typical || l.P999 < l.P99 || l.Max < l.P999 || l.Average > l.Max {
				t.Errorf("%+v", l)
			}
		}
		return
	}
	if len(r.Bandwidth) != len(sizes) || r.Latency != nil {
		t.Fatalf("%+v", r)
	}
	for i, b := range r.Bandwidth {
		if b.Size != sizes[i] || b.Iterations != n || b.Seconds <= 0 || b.Gbps <= 0 || b.PeakGbps < b.Gbps || b.Mpps <= 0 {
			t.Errorf("%+v", b)
		}
	}
}

// perfCase is a run and what it must measure.
type perfCase struct {
	test, args string
	n          uint64
	sizes      []int
}

// allSizes returns the message sizes that -a measures.
func allSizes() (all []int) {
	for size := 2; size <= perf.LastSize; size *= 2 {
		all = append(all, size)
	}
	return all
}

// measures runs each case between two processes, with more appended to its arguments.
func measures(t *testing.T, cases map[string]perfCase, more ...string) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := perfOnLoopback(t, c.test, append(strings.Fields(c.args), more...)...)
			r := decode[perf.Result](t, e.call("--json"), 0)
			measured(t, r, perf.Test(c.test).Latency(), c.n, c.sizes...)
			if code := e.server.rest(); code != 0 {
				t.Errorf("the server's exit code is %d: %q", code, e.server.said)
			}
		})
	}
}

// TestPerfOptions: several QPs, both directions, all sizes, shallow queues, and a limit by time.
func TestPerfOptions(t *testing.T) {
	all := allSizes()
	measures(t, map[string]perfCase{
		"write, QPs":         {"write_bw", "-q 3 -n 50 -s 777 --verify", 150, []int{777}},
		"write, both":        {"write_bw", "-b -n 50 -s 70000 --verify", 100, []int{70000}},
		"read, both, QPs":    {"read_bw", "-b -q 2 -n 50 -s 70000 --verify", 200, []int{70000}},
		"send, both":         {"send_bw", "-b -n 500 -s 24 -r 9 -t 20 --verify", 1000, []int{24}},
		"send, one at once":  {"send_bw", "-n 50 -r 1 -t 1 -s 1", 50, []int{1}},
		"send, one message":  {"send_bw", "-n 1", 1, []int{65536}},
		"write, all sizes":   {"write_bw", "-a -n 5 -t 4 --verify", 5, all},
		"send, all sizes":    {"send_bw", "-a -n 5 -t 4 -r 4 --verify", 5, all},
		"latency, all sizes": {"send_lat", "-a -n 3 --verify", 3, all},
		"write, lists":       {"write_bw", "-l 8 -n 800 -s 64 -t 20 --verify", 800, []int{64}},
		"send, lists":        {"send_bw", "-b -l 6 -Q 3 -n 600 -s 64 -t 6 -r 8 --verify", 1200, []int{64}},
		"read, moderated":    {"read_bw", "-Q 7 -n 100 -s 64 -t 8 --verify", 100, []int{64}},
		"write, moderated":   {"write_bw", "-Q 20 -n 19 -s 64 -t 20 -q 2 --verify", 38, []int{64}},
		"write, inline":      {"write_bw", "-I 1024 -n 300 -s 1024 --verify", 300, []int{1024}},
		"send, inline":       {"send_lat", "-I 24 -n 30 -s 24 --verify", 30, []int{24}},
		"send, events":       {"send_bw", "-e -n 300 -s 64 -b --verify", 600, []int{64}},
		"read, events":       {"read_lat", "-e -n 30 --verify", 30, []int{2}},
		"write, no effect":   {"write_bw", "-F -R -n 30 -s 64", 30, []int{64}},
	})
}

// TestPerfByClock: perf measures the time between the margins, whatever is outstanding at the end.
func TestPerfByClock(t *testing.T) {
	for _, c := range []struct {
		test, args      string
		seconds, margin float64
	}{
		{"write_bw", "-D 2", 2, 0.5}, // 2 s are long enough for a busy machine
		{"write_bw", "-D 2 -f 0 -Q 100 -s 64 --verify", 2, 0},
		{"read_bw", "-D 2 -f 0.1 -Q 100 -s 64 -b --verify", 2, 0.1},
		{"send_bw", "-D 2 -f 0.1 -l 9 -s 64 -q 2 -b --verify", 2, 0.1},
		{"send_lat", "-D 2 -f 0.1", 2, 0.1},
	} {
		t.Run(c.test+" "+c.args, func(t *testing.T) {
			e := perfOnLoopback(t, c.test, strings.Fields(c.args)...)
			answer := e.call("--json")
			r := decode[perf.Result](t, answer, 0)
			schema(t, "perf", answer.stdout)
			if code := e.server.rest(); code != 0 || r.Info.Seconds != c.seconds || r.Info.Margin != c.margin {
				t.Errorf("exit code %d of the server, %+v", code, r)
			}
			if perf.Test(c.test).Latency() {
				measured(t, r, true, r.Latency[0].Iterations, 2)
				return
			}
			measured(t, r, false, r.Bandwidth[0].Iterations, r.Bandwidth[0].Size)
			if took := r.Bandwidth[0].Seconds; c.margin > 0 && math.Abs(took-(c.seconds-2*c.margin)) > 1e-6 || took < c.seconds-2*c.margin-1e-6 {
				t.Errorf("measured for %v s", took)
			}
		})
	}
}

// TestPerfAdapterLimit: an inline size above the adapter's limit gives one line with that limit.
func TestPerfAdapterLimit(t *testing.T) {
	r := run(t, command(t, "perf", "write_bw", "--kernel-port", "-I", "1025"))
	r.ends(t, exitFailed)
	if r.stderr != "stag: perf write_bw: -I 1025: the adapter takes up to 1024 octets inline\n" || r.stdout != "" {
		t.Errorf("printed %q and %q", r.stdout, r.stderr)
	}
}

// TestPerfMismatch: each end names the options that differ.
func TestPerfMismatch(t *testing.T) {
	for args, says := range map[string][2]string{
		"-n 7":        {"-n is 7 here and 5000 there", "-n is 5000 here and 7 there"},
		"-s 4 -q 2":   {"-s is 4 here and 65536 there, -q is 2 here and 1 there", "-s is 65536 here"},
		"--verify -b": {"-b is true here and false there, --verify is true here", "-b is false here"},
	} {
		e := perfOnLoopback(t, "write_bw")
		r := e.call(strings.Fields(args)...)
		r.ends(t, exitFailed)
		code := e.server.rest()
		said := strings.Join(e.server.said, "\n")
		if !strings.Contains(r.stderr, says[0]) || strings.Count(r.stderr, "\n") != 1 || code != exitFailed || !strings.Contains(said, says[1]) {
			t.Errorf("%s: the client said %q; the server, with %d, %q", args, r.stderr, code, said)
		}
	}
}

// TestPerfReport: --out_json_file writes what --json prints.
func TestPerfReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	e := perfOnLoopback(t, "read_lat", "-n", "10")
	r := e.call("--out_json", "--out_json_file", file)
	r.ends(t, 0)
	e.server.rest()
	text, err := os.ReadFile(file)
	rig.Must(t, err)
	schema(t, "perf", string(text))
	measured(t, decode[perf.Result](t, result{stdout: string(text)}, 0), true, 10, 2)
	if n := files(t, filepath.Dir(file)); n != 1 {
		t.Errorf("%d files where the report is", n)
	}
}

// TestPerfWithoutServer: without a server, perf prints one line and writes no report.
func TestPerfWithoutServer(t *testing.T) {
	dir := t.TempDir()
	port := freePort(t)
	r := run(t, command(t, "perf", "send_bw", "--kernel-port", "-p", port, "--out_json", "--out_json_file", filepath.Join(dir, "x"), "127.0.0.1"))
	r.ends(t, exitFailed)
	if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "127.0.0.1:"+port) || files(t, dir) != 0 {
		t.Errorf("%q, %d files", r.stderr, files(t, dir))
	}
	r = run(t, command(t, "perf", "send_bw", "--kernel-port", "--out_json", "--out_json_file", filepath.Join(dir, "no", "x"), "127.0.0.1"))
	r.ends(t, exitFailed)
	if !strings.Contains(r.stderr, "--out_json_file") {
		t.Errorf("%q", r.stderr)
	}
}

// TestPerfUsage: a wrong command line gives one line and exit code 2.
func TestPerfUsage(t *testing.T) {
	for args, says := range map[string]string{
		"fast":                                          `"fast"`,
		"write_bw":                                      "--carrier kernel",
		"write_bw -d eth1 --kernel-port":                "choose one",
		"write_bw --kernel-port a b":                    `"b"`,
		"write_bw --kernel-port -s 0":                   "-s 0",
		"write_bw --kernel-port -s 1073741825":          "1073741824",
		"write_bw --kernel-port -a -s 4":                "-a and -s",
		"write_bw --kernel-port -n 0":                   "-n 0",
		"write_bw --kernel-port -n 5 -D 1":              "-n and -D",
		"write_bw --kernel-port -D 0":                   "-D 0",
		"write_bw --kernel-port -D NaN":                 "-D NaN",
		"write_bw --kernel-port -q 0":                   "-q 0",
		"write_bw --kernel-port -t 4097":                "4096",
		"write_bw --kernel-port -p 0":                   "-p 0",
		"write_bw --kernel-port -p 65536":               "65536",
		"write_bw --kernel-port -r 5":                   "'r'",
		"write_bw --kernel-port -H":                     "'H'",
		"write_bw --kernel-port -s 1073741824 --verify": "memory",
		"send_bw --kernel-port -r 0":                    "-r 0",
		"send_lat --kernel-port -q 2":                   "'q'",
		"send_lat --kernel-port --run_infinitely":       "--run_infinitely",
		"write_bw --kernel-port -Q 0":                   "-Q 0",
		"write_bw --kernel-port -Q 129":                 "-Q 129: more than -t 128",
		"write_bw --kernel-port -l 0":                   "-l 0",
		"write_bw --kernel-port -l 3":                   "-n 5000: choose a multiple of -l 3",
		"read_bw --kernel-port -I 8":                    "-I: a Read",
		"write_bw --kernel-port -f 1":                   "-f has no meaning",
		"write_bw --kernel-port -D 4 -f 2":              "-f 2",
		"write_bw --kernel-port -D 4 -f NaN":            "-f NaN",
		"write_bw --kernel-port --run_infinitely -n 5":  "-n and --run_infinitely",
		"write_bw --kernel-port --run_infinitely -a":    "-a and --run_infinitely",
		"write_bw --kernel-port --run_infinitely -f 1":  "-f has no meaning",
		"read_lat --kernel-port -U -D 1":                "-U keeps",
		"read_lat --kernel-port -l 2":                   "'l'",
		"write_bw --kernel-port -x 256":                 "-x 256: choose 0 to 255",
		"read_lat --kernel-port --out_json_file x":      "--out_json",
	} {
		r := run(t, command(t, append([]string{"perf"}, strings.Fields(args)...)...))
		r.ends(t, exitUsage)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: perf") && !strings.HasPrefix(r.stderr, "stag: write_bw") && !strings.HasPrefix(r.stderr, "stag: send") && !strings.HasPrefix(r.stderr, "stag: read") || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: printed %q and %q, want one line of error that says %q", args, r.stdout, r.stderr, says)
		}
	}
}

// TestPerfOnTerminal: a long run shows its progress on a terminal, and erases it at the end.
func TestPerfOnTerminal(t *testing.T) {
	user, program := newTerminal(t)
	e := perfOnLoopback(t, "write_bw", "-D", "2.5")
	client := command(t, append(e.server.cmd.Args[1:], "127.0.0.1")...)
	client.Stderr = program
	rig.Must(t, client.Run())
	rig.Must(t, program.Close())
	if code := e.server.rest(); code != 0 {
		t.Errorf("the server's exit code is %d: %q", code, e.server.said)
	}
	text, err := io.ReadAll(user)
	if !errors.Is(err, unix.EIO) { // the program has closed the terminal
		t.Error(err)
	}
	if shown := string(text); !strings.Contains(shown, "65536 bytes: ") || !strings.HasSuffix(shown, "\r\033[K") {
		t.Errorf("shown: %q", shown)
	}
}
