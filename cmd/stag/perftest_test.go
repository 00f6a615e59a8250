package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/test/rig"
)

// TestPerftest: two ends of stag speak perftest's exchange, every test on every path. Package test/interop shows the
// exchange with perftest itself.
func TestPerftest(t *testing.T) {
	for name, serve := range perfPaths {
		for _, test := range perf.Tests {
			t.Run(name+"/"+string(test), func(t *testing.T) {
				e := serve(t, string(test), "--perftest", "-n", "70", "-s", "5000")
				answer := e.call("--json")
				schema(t, "perf", answer.stdout)
				r := decode[perf.Result](t, answer, 0)
				if code := e.server.rest(); code != 0 {
					t.Errorf("the server's exit code is %d: %q", code, e.server.said)
				}
				if i := r.Info; i.Test != test || i.Perftest != "6.06" || !strings.Contains(i.Path, e.path) || len(i.Addresses) != 1 || i.Addresses[0].RemoteQPN == 0 {
					t.Errorf("%+v", i)
				}
				measured(t, r, test.Latency(), samplesOf(test, 70), 5000)
			})
		}
	}
}

// samplesOf returns how many latencies a test of n messages has. A latency of write_lat is the time from one message to
// the next.
func samplesOf(test perf.Test, n uint64) uint64 {
	if test == perf.WriteLat {
		return n - 1
	}
	return n
}

// TestPerftestOptions: several QPs, both directions, all sizes, shallow queues, lists, and a limit by time.
func TestPerftestOptions(t *testing.T) {
	all := allSizes()
	measures(t, map[string]perfCase{
		"write, QPs":         {"write_bw", "-q 3 -n 50 -s 777", 150, []int{777}},
		"write, both":        {"write_bw", "-b -n 50 -s 70000 -q 2", 200, []int{70000}},
		"read, both, QPs":    {"read_bw", "-b -q 2 -n 50 -s 1000", 200, []int{1000}},
		"send, QPs, shallow": {"send_bw", "-q 3 -n 500 -s 24 -r 4 -t 20", 1500, []int{24}},
		"send, both":         {"send_bw", "-b -n 500 -s 24 -r 9 -t 20 -q 2", 2000, []int{24}},
		"send, lists":        {"send_bw", "-l 6 -Q 3 -n 600 -s 64 -t 6 -r 8", 600, []int{64}},
		"send, events":       {"send_bw", "-e -n 300 -s 64", 300, []int{64}},
		"write, inline":      {"write_bw", "-I 64 -n 300 -s 64", 300, []int{64}},
		"write, all, both":   {"write_bw", "-a -b -n 5", 10, all},
		"read, all":          {"read_bw", "-a -n 5", 5, all},
		"send, all, both":    {"send_bw", "-a -b -n 5", 10, all},
		"send, all":          {"send_bw", "-a -n 5", 5, all},
		"write turns, all":   {"write_lat", "-a -n 5", 4, all},
		"write turns, many":  {"write_lat", "-n 700", 699, []int{2}}, // the last octet of a message, a counter, wraps
		"send turns, all":    {"send_lat", "-a -n 5", 5, all},
		"read turns, events": {"read_lat", "-e -n 30", 30, []int{2}},
	}, "--perftest")
	for _, args := range []string{"write_bw -D 1", "read_bw -b -D 1", "send_bw -q 2 -D 1", "read_lat -D 1"} {
		t.Run(args, func(t *testing.T) {
			words := strings.Fields(args)
			e := perfOnLoopback(t, words[0], append(words[1:], "--perftest")...)
			r := decode[perf.Result](t, e.call("--json"), 0)
			if code := e.server.rest(); code != 0 || len(r.Bandwidth)+len(r.Latency) != 1 {
				t.Errorf("exit code %d of the server, %+v", code, r)
			}
		})
	}
}

// TestPerftestText: the text is that of a run without --perftest, and names the peer.
func TestPerftestText(t *testing.T) {
	for _, test := range []string{"write_bw", "write_lat"} {
		both(t, perfOnLoopback(t, test, "--perftest", "-n", "20", "-s", "1000"), "perftest_"+test)
	}
}

// TestPerftestRefused: with --perftest, perf refuses options that perftest does not support, and options that the
// exchange cannot carry.
func TestPerftestRefused(t *testing.T) {
	for args, says := range map[string]string{
		"write_bw --verify":         "--verify and --perftest: perftest's octets follow no pattern: leave --verify out",
		"write_bw --run_infinitely": "--run_infinitely and --perftest: choose one",
		"read_lat -n 4":             "-n 4: perftest takes 5 or more",
		"write_bw -a -D 1":          "-a, -D and --perftest: choose two",
		"write_lat -D 1":            "-D and --perftest: the ends of RDMA_Write Latency Test would not stop at the same message: give -n instead",
		"send_lat -D 1":             "-D and --perftest: the ends of Send Latency Test",
		"send_bw -b -D 1":           "-D and --perftest: the ends of Send Bidirectional BW Test",
		"send_bw -r 3":              "-r 3: with --perftest choose 4 or more",
		"send_bw -r 8 -l 8":         "-l 8: with -r 8 choose up to 7",
		"write_lat -e":              "-e and --perftest: choose one: write_lat polls memory, which causes no event",
	} {
		words := strings.Fields(args)
		r := run(t, command(t, append([]string{"perf", words[0], "--kernel-port", "--perftest"}, words[1:]...)...))
		r.ends(t, exitUsage)
		if !strings.HasPrefix(r.stderr, "stag: perf "+words[0]+": "+says) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %q", args, r.stderr)
		}
	}
}

// TestPerftestStrangers: both ends print an error if only one has --perftest, if their tests differ, and if their
// options differ.
func TestPerftestStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		server, client   string
		serverSays, says string
	}{
		"the server has it": {"write_bw --perftest", "write_bw", "is it stag perf without --perftest?", ""},
		"the client has it": {"write_bw", "write_bw --perftest", "for perftest give --perftest", "the server is stag perf, and was not given --perftest"},
		"another size":      {"send_bw --perftest -s 64", "send_bw --perftest -s 65", "a message of 65 octets came, want 64: was the peer given another -s?", ""},
		"a larger one":      {"write_bw --perftest -s 64", "write_bw --perftest -s 65537", "base or bounds violation", "base or bounds violation"},
		"more messages":     {"send_bw --perftest -n 60 -s 64", "send_bw --perftest -n 70 -s 64", "more than 60 messages came: was the peer given another -n?", ""},
		"fewer messages":    {"send_lat --perftest -n 60", "send_lat --perftest -n 50", "the client is done, and fewer messages have come than -n", ""},
		"another test":      {"send_lat --perftest -n 60", "read_bw --perftest -n 60", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			end := func(line string, more ...string) *running {
				args := append([]string{"perf"}, strings.Fields(line+" --kernel-port -p "+port)...)
				return launch(t, command(t, append(args, more...)...))
			}
			server := end(c.server)
			server.until("Waiting for client")
			client := end(c.client, "127.0.0.1")
			server.all(exitFailed)
			client.all(exitFailed)
			complaint(t, server.said, c.serverSays)
			complaint(t, client.said, c.says)
		})
	}
}

// TestPerftestPeerGone: if either end is killed or interrupted in the middle, the other prints one line.
func TestPerftestPeerGone(t *testing.T) {
	for _, test := range perf.Tests {
		for _, victim := range []string{"client", "server"} {
			for _, how := range []os.Signal{os.Kill, os.Interrupt} {
				t.Run(string(test)+"/"+victim+"/"+how.String(), func(t *testing.T) {
					ownSockets(t) // killed processes leave their sockets there
					p := inTheMiddle(t, perfOnLoopback(t, string(test), "--perftest", "-a", "-n", "1000"))
					dies, lives := p.client, p.server
					if victim == "server" {
						dies, lives = p.server, p.client
					}
					rig.Must(t, dies.cmd.Process.Signal(how))
					dies.rest()
					lives.rest()
					if strings.Contains(strings.Join(lives.said, "\n"), "stag: ") || how == os.Kill {
						complaint(t, lives.said, "perf "+string(test)+": ")
					}
					p.cleared(t)
				})
			}
		}
	}
}
