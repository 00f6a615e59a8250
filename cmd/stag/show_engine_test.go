package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// engineVariable is the environment variable that makes a process of the test program act as an engine. Its value
// selects the behaviour.
const engineVariable = "STAG_TEST_ENGINE"

func init() {
	if how := os.Getenv(engineVariable); how != "" {
		orExit(actEngine(how))
		os.Exit(0)
	}
}

// actor answers at a control socket as how selects, without being an engine.
type actor struct{ how string }

// actEngine serves a control socket until its standard input ends.
func actEngine(how string) error {
	if how == "hostile" {
		return actHostile()
	}
	number := control.Number()
	path, err := control.Name(number)
	if err != nil {
		return err
	}
	s, err := control.Serve(path, actor{how}, rig.Silent())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

func (actor) Regions(func(report.MR) bool) {}

func (a actor) Report(ctx context.Context, _ report.Parts) (report.Engine, error) {
	e := report.Engine{
		Schema: report.Schema, PID: os.Getpid(), Program: "actor", Adapter: 1, Started: time.Unix(1, 0),
		Devices: []report.Device{{Name: "act0", State: "PORT_ACTIVE", MTU: 1500, Path: "none", Addresses: []netip.Prefix{}}},
	}
	switch a.how {
	case "well":
	case "hang":
		fmt.Println("asked")
		<-ctx.Done()
		return e, ctx.Err()
	case "schema":
		e.Schema++
	case "lie":
		e.PID, e.Adapter = 1, 7
	case "refuse":
		return e, errors.New("broken\n\x1b[2J in two lines")
	case "escapes":
		e.Program, e.Devices[0].Name = "a\x1b[2Jb\nlink forged", "e\u009b1m\u202e"
	default:
		return e, fmt.Errorf("no such behaviour: %q", a.how)
	}
	return e, nil
}

func (actor) Capture(context.Context, report.Filter, func(report.Batch) error) error {
	return errors.New("an actor has no packets")
}

func (actor) Drain(context.Context, string, func(report.Drain)) (report.Drain, error) {
	return report.Drain{}, errors.New("an actor has no connections")
}

func (actor) Undrain(string) (report.Drain, error) { return report.Drain{}, nil }
func (actor) Upgrade(context.Context, func(report.Upgrade)) (report.Upgrade, error) {
	return report.Upgrade{}, nil
}

// host is a directory of control sockets that no other test and no other process on this machine uses.
type host struct {
	*testing.T
	dir string
}

func newHost(t *testing.T) host {
	t.Helper()
	dir, err := os.MkdirTemp("", "show-")
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, os.RemoveAll(dir)) })
	rig.Must(t, os.Chmod(dir, 0o777)) // the guest must be able to use the directory, too
	return host{t, dir}
}

// at makes cmd use the control sockets of this host.
func (h host) at(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(os.Environ(), "TMPDIR="+h.dir, "XDG_RUNTIME_DIR=")
	return cmd
}

// show runs `stag show` to its end.
func (h host) show(args ...string) result {
	h.Helper()
	return run(h.T, h.at(command(h.T, append([]string{"show"}, args...)...)))
}

// acting is the process of an actor.
type acting struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// act starts an actor, and waits until it answers.
func (h host) act(how string, change ...func(*exec.Cmd)) acting {
	h.Helper()
	cmd := h.at(exec.Command("/proc/self/exe"))
	cmd.Env = append(cmd.Env, engineVariable+"="+how)
	cmd.Stderr = os.Stderr
	for _, f := range change {
		f(cmd)
	}
	in, err := cmd.StdinPipe()
	rig.Must(h.T, err)
	out, err := cmd.StdoutPipe()
	rig.Must(h.T, err)
	rig.Must(h.T, cmd.Start())
	h.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait() // the error only names the signal
		for _, path := range h.sockets() {
			if strings.Contains(path, fmt.Sprintf("engine-%d-", cmd.Process.Pid)) {
				os.Remove(path) // no other process removes this socket
			}
		}
	})
	a := acting{cmd, bufio.NewReader(out)}
	a.says(h.T, "ready")
	return a
}

func (a acting) says(t *testing.T, want string) {
	t.Helper()
	line, err := a.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		t.Fatalf("the actor says %q, %v; want %q", line, err, want)
	}
}

func (a acting) pid() string { return fmt.Sprint(a.cmd.Process.Pid) }

// sockets returns the names of the control sockets of this user's engines.
func (h host) sockets() (names []string) {
	h.Helper()
	dir := filepath.Join(h.dir, fmt.Sprintf("stag-%d", os.Geteuid()))
	if os.Geteuid() == 0 {
		dir = control.Dir()
	}
	names, err := filepath.Glob(filepath.Join(dir, "engine-*"))
	rig.Must(h.T, err)
	return names
}
