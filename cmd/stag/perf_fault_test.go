package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// complaint demands that said has exactly one line of error, that this is the last line, and that it has all of the
// words.
func complaint(t *testing.T, said []string, words ...string) {
	t.Helper()
	errors := 0
	for _, line := range said {
		if strings.HasPrefix(line, "stag: ") {
			errors++
		}
		if strings.Contains(line, "goroutine ") || strings.Contains(line, "panic") {
			t.Errorf("a panic: %s", strings.Join(said, "\n"))
		}
	}
	if errors != 1 || !strings.HasPrefix(said[len(said)-1], "stag: ") {
		t.Fatalf("%d lines of error, want one, the last:\n%s", errors, strings.Join(said, "\n"))
	}
	contains(t, said[len(said)-1], words...)
}

// perfPeers are a server and a client in the middle of a test: the client has printed the row of the first size.
type perfPeers struct{ server, client *running }

// cleared removes what a killed end could not remove.
func (p perfPeers) cleared(t *testing.T) {
	t.Helper()
	killed := func(x *running) bool { return x.cmd.ProcessState.ExitCode() == -1 }
	if os.Geteuid() == 0 && (killed(p.client) || killed(p.server)) {
		clearClaims(t)
	}
}

// onEachPath runs f with peers of each test, over the kernel's TCP and offloaded.
func onEachPath(t *testing.T, f func(*testing.T, perf.Test, perfPeers)) {
	for _, test := range perf.Tests {
		t.Run("kernel/"+string(test), func(t *testing.T) {
			ownSockets(t) // killed processes leave their sockets there
			p := inTheMiddle(t, perfOnLoopback(t, string(test), "-a", "-D", "0.5"))
			f(t, test, p)
			p.cleared(t)
		})
		t.Run("pair/"+string(test), func(t *testing.T) {
			before := tracesOf(t)
			e := perfAcrossPair(t, string(test), "-a", "-D", "0.5")
			p := inTheMiddle(t, e)
			f(t, test, p)
			p.cleared(t)
			rig.Must(t, e.pair.Close())
			before.gone(t)
		})
	}
}

func inTheMiddle(t *testing.T, e perfEnds) perfPeers {
	t.Helper()
	p := perfPeers{server: e.server}
	if e.pair == nil {
		p.client = launch(t, e.client())
	} else {
		in(t, e.pair, func() error { p.client = launch(t, e.client()); return nil })
	}
	p.client.until(" 2 ")
	return p
}

var firstRow = regexp.MustCompile(`(?m)^ 2 +[1-9]\d* +[\d.]+ `)

// TestPerfInterruptedMidway: Ctrl-C at the client in the middle of each test. The client prints what it has measured
// until then, and the server is told.
func TestPerfInterruptedMidway(t *testing.T) {
	onEachPath(t, func(t *testing.T, test perf.Test, p perfPeers) {
		rig.Must(t, p.client.cmd.Process.Signal(os.Interrupt))
		said := p.client.all(exitFailed)
		if !firstRow.MatchString(said) || strings.Contains(said, "\n 8388608") {
			t.Errorf("the client said %s", said)
		}
		complaint(t, p.client.said, "perf "+string(test)+": interrupted")
		p.server.all(exitFailed)
		complaint(t, p.server.said, "the client was interrupted")
	})
}

// TestPerfServerInterrupted: Ctrl-C at the server in the middle of each test. The server says so. The client prints
// what it has measured, and is told.
func TestPerfServerInterrupted(t *testing.T) {
	onEachPath(t, func(t *testing.T, test perf.Test, p perfPeers) {
		rig.Must(t, p.server.cmd.Process.Signal(os.Interrupt))
		p.server.all(exitFailed)
		complaint(t, p.server.said, "perf "+string(test)+": interrupted")
		said := p.client.all(exitFailed)
		if !firstRow.MatchString(said) {
			t.Errorf("the client said %s", said)
		}
		complaint(t, p.client.said, "perf "+string(test)+": ")
	})
}

// TestPerfPeerDies: if either end is killed in the middle of a test, the other prints one line.
func TestPerfPeerDies(t *testing.T) {
	for _, victim := range []string{"client", "server"} {
		onEachPath(t, func(t *testing.T, test perf.Test, p perfPeers) {
			dies, lives := p.client, p.server
			if victim == "server" {
				dies, lives = p.server, p.client
			}
			rig.Must(t, dies.cmd.Process.Kill())
			dies.rest()
			lives.all(exitFailed)
			complaint(t, lives.said, "perf "+string(test)+": ")
		})
	}
}

// TestPerfUnread: a perf whose reader has gone ends with one line, and no process waits for that reader.
func TestPerfUnread(t *testing.T) {
	for _, args := range [][]string{{"--json"}, nil, {"-U"}} {
		e := perfOnLoopback(t, "read_lat", "-n", "20000")
		complaint(t, lines(unread(t, e.client(args...))), "broken pipe")
		e.server.rest()
	}
}

// TestPerfReadOnce: a perf ends with one line if its reader goes away in the middle of the output, as head does.
func TestPerfReadOnce(t *testing.T) {
	e := perfOnLoopback(t, "read_lat", "-n", "20000")
	cmd := e.client("-U", "--json")
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	var errs strings.Builder
	cmd.Stderr = &errs
	rig.Must(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	rig.Must(t, err)
	rig.Must(t, out.Close())
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	complaint(t, strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n"), "broken pipe")
	e.server.all(0)
}

// TestPerfDiskFull: perf ends with one line if it cannot write a result.
func TestPerfDiskFull(t *testing.T) {
	e := perfOnLoopback(t, "read_lat", "-n", "10")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	rig.Must(t, err)
	defer full.Close()
	cmd := e.client("--json")
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = full, &errs
	rig.Must(t, cmd.Start())
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	complaint(t, strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n"), "no space left")
	e.server.all(0)
}

// TestPerfDiffers: both ends name each option that must be the same at both and is not.
func TestPerfDiffers(t *testing.T) {
	for _, c := range []struct{ test, args, client, server string }{
		{"write_bw", "-Q 5", "-Q is 5 here and 1 there", "-Q is 1 here and 5 there"},
		{"write_bw", "-l 5", "-l is 5 here and 1 there, -Q is 5 here", "-l is 1 here and 5 there"},
		{"send_bw", "-I 64 -e", "-I is 64 here and 0 there, -e is true here", "-I is 0 here and 64 there"},
		{"send_bw", "-r 9", "-r is 9 here and 512 there", "-r is 512 here and 9 there"},
		{"write_bw", "--run_infinitely", "--run_infinitely is true here and false there", "-D is 0 here and 5 there"},
	} {
		e := perfOnLoopback(t, c.test)
		x := launch(t, e.client(strings.Fields(c.args)...))
		x.all(exitFailed)
		complaint(t, x.said, "the same options", c.client)
		e.server.all(exitFailed)
		complaint(t, e.server.said, "the same options", c.server)
	}
	e := perfOnLoopback(t, "write_lat", "-D", "9")
	x := launch(t, e.client("-f", "1"))
	x.all(exitFailed)
	complaint(t, x.said, "-f is 1 here and 2.25 there")
	e.server.all(exitFailed)
	other := e.server.cmd.Args
	s := launch(t, command(t, other[1:]...))
	s.until("Waiting for client")
	args := slices.Clone(other[1:])
	args[1] = "read_lat"
	x = launch(t, command(t, append(args, "127.0.0.1")...))
	x.all(exitFailed)
	complaint(t, x.said, "test is read_lat here and write_lat there")
	s.all(exitFailed)
}

// TestPerfNobody: perf ends with one line if no server listens at the address, and if the address is invalid.
func TestPerfNobody(t *testing.T) {
	port := freePort(t)
	for server, words := range map[string][]string{
		"127.0.0.1":       {"127.0.0.1:" + port, "refused", "start the server there first"},
		"::1":             {"[::1]:" + port, "refused", "start the server there first"},
		"127.0.0.1:18515": {"give a host name or an address, and the port by -p"},
		"no host":         {"give a host name or an address"},
	} {
		x := launch(t, command(t, "perf", "send_lat", "--kernel-port", "-p", port, server))
		x.all(exitFailed)
		complaint(t, x.said, append(words, "perf send_lat: call the server at ")...)
	}
}

// TestPerfStrangers: perf prints one line if the server is another program, which closes the connection or sends other data.
func TestPerfStrangers(t *testing.T) {
	for _, says := range []string{"", "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		rig.Must(t, err)
		go func() {
			defer l.Close()
			if c, err := l.Accept(); err == nil {
				c.Read(make([]byte, 1024))
				c.Write([]byte(says))
				c.Close()
			}
		}()
		_, port, err := net.SplitHostPort(l.Addr().String())
		rig.Must(t, err)
		x := launch(t, command(t, "perf", "write_bw", "--kernel-port", "-p", port, "127.0.0.1"))
		x.all(exitFailed)
		complaint(t, x.said, "perf write_bw: call the server at 127.0.0.1:"+port)
	}
}

// TestPerfPortInUse: a second server at the same port prints what to do.
func TestPerfPortInUse(t *testing.T) {
	e := perfOnLoopback(t, "write_bw")
	x := launch(t, command(t, e.server.cmd.Args[1:]...))
	x.all(exitFailed)
	complaint(t, x.said, "address already in use", "choose another -p")
	rig.Must(t, e.server.cmd.Process.Signal(os.Interrupt))
	e.server.all(exitFailed)
	complaint(t, e.server.said, "perf write_bw: interrupted")
}

// TestPerfWithoutRights: perf names the right that a test lacks, and runs a test that needs none.
func TestPerfWithoutRights(t *testing.T) {
	anyone := func(args ...string) *exec.Cmd {
		cmd := command(t, append([]string{"perf", "send_bw"}, args...)...)
		if os.Geteuid() == 0 {
			as(cmd)
		}
		return cmd
	}
	x := launch(t, anyone("-d", "lo", "127.0.0.1"))
	x.all(exitFailed)
	complaint(t, x.said, "perf send_bw: ", "CAP_BPF", "or as root")
	port := freePort(t)
	s := launch(t, anyone("--kernel-port", "-p", port, "-n", "10"))
	s.until("Waiting for client")
	run(t, anyone("--kernel-port", "-p", port, "-n", "10", "127.0.0.1")).ends(t, 0)
	s.all(0)
	dir := filepath.Join(t.TempDir(), "closed")
	rig.Must(t, os.Mkdir(dir, 0o500))
	x = launch(t, anyone("--kernel-port", "-p", port, "--out_json", "--out_json_file", filepath.Join(dir, "x"), "127.0.0.1"))
	x.all(exitFailed)
	complaint(t, x.said, "--out_json_file", "permission denied", "choose another place")
}

// TestPerfWrongInterface: perf rejects an interface that does not exist, and names those that exist.
func TestPerfWrongInterface(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	var x *running
	in(t, p, func() error { x = launch(t, command(t, "perf", "write_bw", "-d", "eth77")); return nil })
	x.all(exitFailed)
	complaint(t, x.said, "eth77", p.Ends[pair.A].Name)
}

// TestPerfInterruptedWaiting: a server that no client has called prints as JSON the test that it was started for, and
// that it was interrupted.
func TestPerfInterruptedWaiting(t *testing.T) {
	cmd := command(t, "perf", "read_bw", "--kernel-port", "-p", freePort(t), "-q", "2", "--json")
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	errs, err := cmd.StderrPipe()
	rig.Must(t, err)
	rig.Must(t, cmd.Start())
	awaitPort(t, cmd.Args[5])
	rig.Must(t, cmd.Process.Signal(os.Interrupt))
	text, err := io.ReadAll(out)
	rig.Must(t, err)
	line, err := io.ReadAll(errs)
	rig.Must(t, err)
	cmd.Wait()
	schema(t, "perf", string(text))
	r := decode[perf.Result](t, result{code: cmd.ProcessState.ExitCode(), stdout: string(text)}, exitFailed)
	if !r.Interrupted || !r.Info.Server || r.Info.QPs != 2 || string(line) != "stag: perf read_bw: interrupted\n" {
		t.Errorf("%+v, and %q", r, line)
	}
}

// awaitPort waits until a socket listens at a port of the loopback. It reads the kernel's list of sockets, because the
// server would take a test connection for a client. It reads the list of this thread's namespace, because the first
// thread may have moved to another namespace.
func awaitPort(t *testing.T, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	rig.Must(t, err)
	listens := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, n))
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			text, err := os.ReadFile(table)
			rig.Must(t, err)
			if listens.Match(text) {
				return
			}
		}
	}
	t.Fatalf("nobody listens at %s", port)
}
