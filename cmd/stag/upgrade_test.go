package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/successor"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// echoing is a `stag echo` whose program can be replaced. Its peers use the kernel's TCP.
type echoing struct {
	*testing.T
	pair    *pair.Pair
	program string
	server  *running
	pid     int
	address string
	systemd string // path of the socket for notifications
}

func newEchoing(t *testing.T) *echoing {
	t.Helper()
	need.Root(t)
	e := &echoing{T: t, pair: netns.XDPPair(t, pair.Config{}), program: filepath.Join(t.TempDir(), "stag")}
	e.install(binary)
	cmd := command(t, "echo", "-i", e.pair.Ends[pair.A].Name, "-p", "0", "--json")
	cmd.Path, cmd.Args[0] = e.program, e.program
	e.systemd = filepath.Join(filepath.Dir(e.program), "notify")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+e.systemd)
	rig.Must(t, e.pair.Do(pair.A, func() error { e.server = launch(t, cmd); return nil }))
	e.pid = cmd.Process.Pid
	e.server.until("listening on ")
	said := e.server.said[len(e.server.said)-1]
	_, port, err := net.SplitHostPort(strings.TrimPrefix(said, "listening on "))
	rig.Must(t, err)
	e.address = net.JoinHostPort(e.pair.Ends[pair.A].V4.Addr().String(), port)
	go func() { // reads on, so that no process blocks
		for range e.server.lines {
		}
	}()
	t.Cleanup(func() { syscall.Kill(e.pid, syscall.SIGKILL) }) // an error means that it has ended
	return e
}

// install replaces the program by a copy of another one, as a package manager does.
func (e *echoing) install(from string) {
	e.Helper()
	b, err := os.ReadFile(from)
	rig.Must(e, err)
	fresh := e.program + ".new"
	rig.Must(e, errors.Join(os.WriteFile(fresh, b, 0o755), os.Rename(fresh, e.program)))
}

func (e *echoing) dial() net.Conn {
	e.Helper()
	var c net.Conn
	rig.Must(e, e.pair.Do(pair.B, func() (err error) { c, err = net.Dial("tcp", e.address); return err }))
	e.Cleanup(func() { c.Close() })
	return c
}

// echoes sends n octets and demands that they come back.
func (e *echoing) echoes(c net.Conn, n int) {
	e.Helper()
	out := bytes.Repeat([]byte("stag"), n/4)
	in := make([]byte, len(out))
	rig.Must(e, c.SetDeadline(rig.Deadline()))
	sent := make(chan error, 1)
	go func() { _, err := c.Write(out); sent <- err }()
	_, err := io.ReadFull(c, in)
	rig.Must(e, errors.Join(err, <-sent))
	if !bytes.Equal(in, out) {
		e.Error("other octets came back")
	}
}

// TestUpgrade upgrades a running `stag echo` three times, by its pid and by its port, while
// its peers send. The program is replaced before. Old and new connections go on in the new
// process, and the old one ends.
func TestUpgrade(t *testing.T) {
	e := newEchoing(t)
	conns := []net.Conn{e.dial(), e.dial()}
	systemd, err := net.ListenPacket("unixgram", e.systemd)
	rig.Must(t, err)
	defer systemd.Close()
	for round := range 3 {
		e.echoes(conns[0], 1<<20)
		e.install(binary)
		which := []string{strconv.Itoa(e.pid)}
		if round == 1 {
			which = []string{"--device", e.pair.Ends[pair.A].Name}
		}
		busy := make(chan struct{})
		go func() { defer close(busy); e.echoes(conns[1], 8<<20) }()
		got := run(t, command(t, append([]string{"upgrade", "--json"}, which...)...))
		got.ends(t, 0)
		schema(t, "upgrade", got.stdout)
		var r successor.Result
		rig.Must(t, json.Unmarshal([]byte(got.stdout), &r))
		if r.PID != e.pid || r.Successor == e.pid || r.Flows != len(conns) || len(r.Lost) != 0 {
			t.Errorf("pid %d: %+v, want %d connections", e.pid, r, len(conns))
		}
		contains(t, got.stderr, fmt.Sprintf("pid %d (stag): starting the new process\n", e.pid))
		t.Logf("prepared in %.1f ms, frozen for %.1f ms", r.PrepareMS, r.FrozenMS)
		<-busy
		said := make([]byte, 64)
		rig.Must(t, systemd.SetReadDeadline(rig.Deadline()))
		n, _, err := systemd.ReadFrom(said)
		rig.Must(t, err)
		if want := fmt.Sprintf("MAINPID=%d", r.Successor); string(said[:n]) != want {
			t.Errorf("systemd was told %q, want %q", said[:n], want)
		}
		old := e.pid
		e.pid = r.Successor
		if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", e.pid)); err != nil || program != e.program {
			t.Errorf("the new process runs %q, %v", program, err)
		}
		rig.Eventually(t, "the old process has ended", func() bool { return hasEnded(old) })
		conns = append(conns, e.dial())
		for _, c := range conns {
			e.echoes(c, 64<<10)
		}
	}
	rig.Must(t, syscall.Kill(e.pid, syscall.SIGINT))
	rig.Eventually(t, "the last process has ended", func() bool { return hasEnded(e.pid) })
}

// hasEnded reports whether a process has ended. A process whose parent has not waited for it
// has ended too.
func hasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	return strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
}

// TestUpgradeFails installs programs that do not succeed. The old process says why, and goes
// on.
func TestUpgradeFails(t *testing.T) {
	e := newEchoing(t)
	c := e.dial()
	for program, why := range map[string]string{
		"false": "the new process has ended (exit status 1)",
		"true":  "the new process has ended (exit status 0)",
	} {
		path, err := exec.LookPath(program)
		rig.Must(t, err)
		e.install(path)
		got := run(t, command(t, "upgrade", strconv.Itoa(e.pid)))
		got.ends(t, 1)
		contains(t, got.stderr, why)
		e.echoes(c, 64<<10)
	}
	rig.Must(t, os.Remove(e.program))
	got := run(t, command(t, "upgrade", strconv.Itoa(e.pid)))
	got.ends(t, 1)
	contains(t, got.stderr, "start the new process")
	e.echoes(c, 64<<10)
	e.echoes(e.dial(), 64<<10)

	e.install(binary) // nobody listens at the socket of systemd
	got = run(t, command(t, "upgrade", strconv.Itoa(e.pid)))
	got.ends(t, 1)
	contains(t, got.stdout, "2 connections continue in pid ", "tell systemd of the new process")
	e.echoes(c, 64<<10)
	_, after, _ := strings.Cut(got.stdout, "continue in pid ")
	pid, _, _ := strings.Cut(after, ";")
	next, err := strconv.Atoi(pid)
	rig.Must(t, err)
	rig.Must(t, syscall.Kill(next, syscall.SIGINT))
	rig.Eventually(t, "the last process has ended", func() bool { return hasEnded(next) })
}

// TestUpgradeRefused: a process that cannot be upgraded says why, and goes on.
func TestUpgradeRefused(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	rig.Must(t, free.Close())
	_, port, err := net.SplitHostPort(free.Addr().String())
	rig.Must(t, err)
	server := launch(t, command(t, "ping", "-s", "-P", "--kernel-port", "-a", "127.0.0.1", "-p", port))
	server.until("listening on ")
	pid := strconv.Itoa(server.cmd.Process.Pid)
	got := run(t, command(t, "upgrade", pid))
	got.ends(t, 1)
	contains(t, got.stderr, "pid "+pid+": cannot be upgraded, because the kernel's TCP runs its connections")
	rig.Must(t, server.cmd.Process.Signal(os.Interrupt))
	if code := server.rest(); code != 0 {
		t.Errorf("the server ends with %d: %q", code, server.said)
	}
	for args, says := range map[string]string{
		"upgrade": "name the process", "upgrade 1 -d eth1": "name the process", "upgrade x": `"x" is no number`,
	} {
		got := run(t, command(t, strings.Fields(args)...))
		got.ends(t, exitUsage)
		contains(t, got.stderr, says)
	}
}
