package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/ping"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// freePort returns a loopback port at which no socket listens. It is below the range from which the kernel assigns
// ports, so that no other process gets the port before the test uses it.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			rig.Must(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// onLoopback returns a stag ping over the kernel's TCP, run by the guest.
func onLoopback(t *testing.T, port string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, append([]string{"ping", "--kernel-port", "-a", "127.0.0.1", "-p", port}, args...)...)
	if os.Geteuid() == 0 {
		as(cmd)
	}
	return cmd
}

// listening starts a server and waits until it listens.
func listening(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	x := launch(t, cmd)
	x.until("listening on ")
	return x
}

// all demands that a command ends with this exit code, and returns its output.
func (x *running) all(code int) string {
	x.Helper()
	got := x.rest()
	said := strings.Join(x.said, "\n")
	if got != code {
		x.Errorf("exit code %d, want %d\n%s", got, code, said)
	}
	return said
}

// contains demands that text has all of the words.
func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

func TestPing(t *testing.T) {
	port := freePort(t)
	s := listening(t, onLoopback(t, port, "-s", "-V", "-v"))
	r := run(t, onLoopback(t, port, "-c", "-C", "3", "-V", "-v", "-d"))
	r.ends(t, 0)
	contains(t, r.stdout, "ping data: rdma-ping-0: ABC", "ping data: rdma-ping-2: CDE",
		"3 pings, 192 octets each way, all compared", "kernel port", "(min/avg/max)")
	contains(t, r.stderr, "connected to 127.0.0.1:"+port, "send: 64 octets at", "go ahead", "disconnect")
	contains(t, s.all(0), "server ping data: rdma-ping-2: CDE", "3 pings, 192 octets", "Clients: 1. Failed: 0.")
}

// TestPingPersistent: the server takes one client after another, and Ctrl-C ends it normally.
func TestPingPersistent(t *testing.T) {
	port := freePort(t)
	s := listening(t, onLoopback(t, port, "-s", "-P", "-S", "1000"))
	for range 3 {
		r := decode[ping.Result](t, run(t, onLoopback(t, port, "-c", "-C", "2", "-S", "1000", "-V", "--json")), 0)
		if r.Role != "client" || r.Pings != 2 || r.Octets != 2000 || !r.Validated || r.Exchange == nil || r.Interrupted {
			t.Errorf("%+v", r)
		}
	}
	r := decode[ping.Result](t, run(t, onLoopback(t, port, "-c", "-S", "1001", "--json")), exitFailed)
	contains(t, r.Error, "ping 0: ", "reset by peer")
	rig.Must(t, s.cmd.Process.Signal(os.Interrupt))
	contains(t, s.all(0), "1001 octets, this server takes 1 to 1000", "6 pings, 6000 octets", "Clients: 4. Failed: 1.")
}

// TestPingInterrupted: ping prints the summary after Ctrl-C. The exit code depends on the options: see the manual page.
func TestPingInterrupted(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", 0, " pings, "},
		{"-C 100000000", exitFailed, "of 100000000 pings"},
	} {
		port := freePort(t)
		s := listening(t, onLoopback(t, port, "-s"))
		x := launch(t, onLoopback(t, port, append([]string{"-c", "-v"}, strings.Fields(c.args)...)...))
		x.until("rdma-ping-20: ")
		rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
		contains(t, x.all(c.code), c.says, "octets each way, in ", "(min/avg/max)")
		contains(t, s.all(0), "Clients: 1. Failed: 0.")
	}
}

// TestPingNobody: a server that is interrupted before a client connects, and a client without a server, print one line.
func TestPingNobody(t *testing.T) {
	port := freePort(t)
	s := listening(t, onLoopback(t, port, "-s"))
	rig.Must(t, s.cmd.Process.Signal(os.Interrupt))
	contains(t, s.all(exitFailed), "interrupted before there was a connection")
	s = listening(t, onLoopback(t, port, "-s", "-d"))
	c := launch(t, onLoopback(t, port, "-c"))
	s.until("RDMA Write")
	rig.Must(t, c.cmd.Process.Signal(os.Interrupt))
	contains(t, c.all(0), " pings, ")
	contains(t, s.all(0), "the client has left")
	r := run(t, onLoopback(t, port, "-c", "-C", "1"))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "stag: ping: dial 127.0.0.1:"+port, "refused")
}

// TestPingUsage: a wrong command line gives one line and exit code 2.
func TestPingUsage(t *testing.T) {
	for args, says := range map[string]string{
		"":                                   "choose one: -s",
		"-s -c -a h --kernel-port":           "choose one: -s",
		"-c --kernel-port":                   "-c needs -a",
		"-c -a h":                            "choose one: -i",
		"-s":                                 "choose one: -i",
		"-s -i eth1 --kernel-port":           "choose one: -i",
		"-c -a h --kernel-port -P":           "-P is for a server",
		"-s --kernel-port -p 0":              "-p 0",
		"-s --kernel-port -p 65536":          "choose 1 to 65535",
		"-s --kernel-port -S 0":              "-S 0",
		"-s --kernel-port -S 65537":          "choose 1 to 65536",
		"-c -a h --kernel-port -C 0":         "-C 0",
		"-c -a h --kernel-port -C -1":        "-1",
		"-c -a h --kernel-port -v --json":    "choose one",
		"-c -a h --kernel-port now":          `"now"`,
		"-c -a h --kernel-port --loud":       "--loud",
		"-c -a h --kernel-port -S sixtyfour": "sixtyfour",
	} {
		r := run(t, command(t, append([]string{"ping"}, strings.Fields(args)...)...))
		r.ends(t, exitUsage)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: ping: ") || !strings.Contains(r.stderr, says) {
			t.Errorf("%q printed %q and %q, want one line of error that says %q", args, r.stdout, r.stderr, says)
		}
	}
}

// TestPingWrongInterface: ping fails if one of its interfaces does not exist.
func TestPingWrongInterface(t *testing.T) {
	r := run(t, command(t, "ping", "-s", "-i", "eth77"))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "stag: ping: ", "eth77")
}

// TestPingOverPair: ping over IPv4 and IPv6, with both ends offloaded, and with one end offloaded and the other on
// the kernel's TCP. Both ends are interrupted.
func TestPingOverPair(t *testing.T) {
	need.XDP(t)
	for _, c := range []struct {
		name           string
		v6             bool
		server, client bool // which ends are offloaded
	}{
		{"both", false, true, true},
		{"both, IPv6", true, true, true},
		{"server", false, true, false},
		{"client", false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := tracesOf(t)
			p := netns.XDPPair(t, pair.Config{})
			host := p.Ends[pair.B].V4.Addr().String()
			if c.v6 {
				host = p.Ends[pair.B].V6.Addr().String()
			}
			way := func(side pair.Side, taken bool) []string {
				if taken {
					return []string{"ping", "-a", host, "-i", p.Ends[side].Name}
				}
				return []string{"ping", "-a", host, "--kernel-port"}
			}
			var s *running
			rig.Must(t, p.Do(pair.B, func() error {
				s = listening(t, command(t, append(way(pair.B, c.server), "-s", "-P", "-V")...))
				return nil
			}))
			for _, size := range []int{1, 64, 1461, 65536} {
				args := append(way(pair.A, c.client), "-c", "-C", "20", "-V", "--json", "-S", fmt.Sprint(size))
				r := decode[ping.Result](t, inside(t, p, command(t, args...)), 0)
				if r.Pings != 20 || r.Octets != uint64(20*size) || strings.Contains(r.Path, "XDP") != c.client {
					t.Errorf("%+v", r)
				}
			}
			var x *running
			rig.Must(t, p.Do(pair.A, func() error {
				x = launch(t, command(t, append(way(pair.A, c.client), "-c", "-v")...))
				return nil
			}))
			x.until("rdma-ping-20: ")
			rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
			contains(t, x.all(0), "octets each way, in ", "(min/avg/max)")
			rig.Must(t, s.cmd.Process.Signal(os.Interrupt))
			contains(t, s.all(0), "all compared", "Clients: 5. Failed: 0.")
			rig.Must(t, p.Close())
			before.gone(t)
		})
	}
}

// TestPingInterval: ping prints a line with the duration of each ping, and Ctrl-C ends a pause.
func TestPingInterval(t *testing.T) {
	port := freePort(t)
	server := listening(t, onLoopback(t, port, "-s"))
	begin := time.Now()
	r := run(t, onLoopback(t, port, "-c", "-C", "3", "--interval", "0.2"))
	r.ends(t, 0)
	if took := time.Since(begin); took < 400*time.Millisecond {
		t.Errorf("three pings took %v, and there are two pauses of 0.2 s", took)
	}
	if lines := regexp.MustCompile(`(?m)^ping \d: 64 octets, \d+\.\d us$`).FindAllString(r.stdout, -1); len(lines) != 3 {
		t.Errorf("no line for each of three pings:\n%s", r.stdout)
	}
	server.all(0)

	server = listening(t, onLoopback(t, port, "-s"))
	client := launch(t, onLoopback(t, port, "-c", "--interval", "1000"))
	client.until("ping 0: ")
	rig.Must(t, client.cmd.Process.Signal(os.Interrupt))
	client.all(0)
	server.all(0)

	for args, says := range map[string]string{"-c -a x --interval 0": "--interval 0: choose 0.001", "-s --interval 1": "--interval is for a client"} {
		r := run(t, command(t, append(strings.Fields("ping --kernel-port"), strings.Fields(args)...)...))
		if r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// TestPingUnconnected: an end that never had a connection prints the reason and nothing else.
func TestPingUnconnected(t *testing.T) {
	r := run(t, onLoopback(t, freePort(t), "-c", "-C", "1"))
	if r.code != exitFailed || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
}

// TestPingThroughDaemon: both ends use the adapter of one daemon, as an ordinary user.
func TestPingThroughDaemon(t *testing.T) {
	socket, port := daemonOnLoopback(t), freePort(t)
	through := func(args ...string) *exec.Cmd {
		return command(t, append([]string{"ping", "--daemon=" + socket, "-a", "127.0.0.1", "-p", port, "-V"}, args...)...)
	}
	s := listening(t, through("-s"))
	r := run(t, through("-c", "-C", "100", "-S", "10000"))
	r.ends(t, 0)
	contains(t, r.stdout, "100 pings, 1000000 octets each way, all compared", "over daemon")
	contains(t, s.all(0), "100 pings, 1000000 octets", "Failed: 0.")
	r = run(t, command(t, "ping", "-c", "--daemon="+socket, "--kernel-port", "-a", "127.0.0.1"))
	r.ends(t, 2)
	contains(t, r.stderr, "choose one")
}

// daemonOnLoopback starts a daemon over the kernel's TCP, and returns its socket.
func daemonOnLoopback(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "stagd.sock")
	x := launch(t, command(t, "daemon", "--kernel-port", "--socket", socket))
	x.until("serving ")
	return socket
}

// TestPerfThroughDaemon: perf over a daemon, with the kernel's TCP at the other end.
func TestPerfThroughDaemon(t *testing.T) {
	socket := daemonOnLoopback(t)
	for _, test := range []string{"write_bw", "read_bw", "send_lat"} {
		port := freePort(t)
		s := launch(t, command(t, "perf", test, "--kernel-port", "-p", port, "-n", "200"))
		s.until("Waiting for client")
		r := run(t, command(t, "perf", test, "--daemon="+socket, "-p", port, "-n", "200", "127.0.0.1"))
		r.ends(t, 0)
		contains(t, r.stdout, "Path            : daemon")
		s.all(0)
	}
}

// TestBusyInterfaceNamesTheDaemon: the error for an interface that a daemon has says how to
// share it.
func TestBusyInterfaceNamesTheDaemon(t *testing.T) {
	t.Setenv("STAG_DAEMON", filepath.Join(t.TempDir(), "nobody"))
	busy := fmt.Errorf("eth1 is in use by pid 7 (stag): %w", loader.ErrQueueBusy)
	if got := advised(busy).Error(); strings.Contains(got, "--daemon") {
		t.Errorf("%s, and no daemon runs", got)
	}
	t.Setenv("STAG_DAEMON", daemonOnLoopback(t))
	contains(t, advised(busy).Error(), "eth1 is in use by pid 7", "share the adapter of the stag daemon that runs: --daemon")
}
