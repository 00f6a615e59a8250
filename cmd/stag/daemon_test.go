package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma/daemon"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// aDaemon starts `stag daemon` over the kernel port.
func aDaemon(t *testing.T, args ...string) (*running, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stagd.sock")
	r := launch(t, command(t, append([]string{"daemon", "--kernel-port", "--socket", path}, args...)...))
	r.until("serving the kernel port at " + path)
	return r, path
}

// exits demands the exit code.
func (x *running) exits(code int) {
	x.Helper()
	if got := x.rest(); got != code {
		x.Errorf("exit code %d, want %d\n%s", got, code, strings.Join(x.said, "\n"))
	}
}

// The daemon serves until Ctrl-C, prints a summary and removes its socket.
func TestDaemon(t *testing.T) {
	r, path := aDaemon(t, "--json")
	for range 2 {
		if names, err := daemon.Ask(path); err != nil || len(names) != 1 {
			t.Errorf("ports %q, %v", names, err)
		}
	}
	second := run(t, command(t, "daemon", "--kernel-port", "--socket", path))
	second.ends(t, exitFailed)
	contains(t, second.stderr, "a daemon serves", "choose another --socket")
	rig.Must(t, r.cmd.Process.Signal(os.Interrupt))
	r.exits(0)
	var summary struct {
		Socket      string
		Clients     int
		Interrupted bool
	}
	rig.Must(t, json.Unmarshal([]byte(strings.Join(r.said[1:], "")), &summary))
	if summary.Socket != path || summary.Clients != 2 || !summary.Interrupted {
		t.Errorf("%+v", summary)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestDaemonUsage(t *testing.T) {
	for args, says := range map[string]string{
		"daemon":                               "choose interfaces with -i, or --carrier kernel",
		"daemon -i a --kernel-port":            "choose interfaces with -i, or --carrier kernel",
		"daemon --kernel-port --quota cars=1":  "choose one of pds, channels",
		"daemon --kernel-port --quota qps=no":  "qps=NUMBER",
		"daemon --kernel-port now":             `"now"`,
		"run":                                  "which program",
		"run --kernel-port --device a -- true": "choose --device or --carrier kernel",
		"run --personality gold -- true":       "choose iwarp or roce",
	} {
		r := run(t, command(t, strings.Fields(args)...))
		r.ends(t, exitUsage)
		contains(t, r.stderr, says)
	}
	r := run(t, command(t, "daemon", "--kernel-port", "--socket", filepath.Join(t.TempDir(), "s"), "--group", "no-such-group-here"))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "--group", "no-such-group-here")
}

// systemd passes a socket that it has made, and keeps it.
func TestDaemonOfSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	rig.Must(t, err)
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	rig.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	rig.Must(t, unix.Listen(fd, 8))
	cmd := command(t)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" daemon --kernel-port`, binary}
	cmd.ExtraFiles = []*os.File{socket}
	r := launch(t, cmd)
	if names, err := daemon.Ask(path); err != nil || len(names) != 1 {
		t.Errorf("ports %q, %v", names, err)
	}
	r.until("serving the kernel port at " + path)
	rig.Must(t, r.cmd.Process.Signal(syscall.SIGTERM))
	r.exits(0)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("systemd's socket is gone: %v", err)
	}
}

// A socket of another type, or more than one, is an error.
func TestDaemonOfSystemdWithWrongSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	rig.Must(t, err)
	defer l.Close()
	file, err := l.(*net.UnixListener).File()
	rig.Must(t, err)
	defer file.Close()
	for count, says := range map[string]string{"1": "SOCK_SEQPACKET", "2": "want one"} {
		cmd := command(t)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%s exec "$0" daemon --kernel-port`, count), binary}
		cmd.ExtraFiles = []*os.File{file, file}
		r := run(t, cmd)
		r.ends(t, exitFailed)
		contains(t, r.stderr, says)
	}
}

// An interface of a daemon is in use, and the message names the daemon and says how to share.
// Programs reach the daemon from everywhere, because its socket is a path.
func TestDaemonOwnsInterface(t *testing.T) {
	need.Root(t)
	p := netns.XDPPair(t, pair.Config{})
	name, path := p.Ends[pair.A].Name, filepath.Join(t.TempDir(), "stagd.sock")
	var r *running
	rig.Must(t, p.Do(pair.A, func() error { r = launch(t, command(t, "daemon", "-i", name, "--socket", path)); return nil }))
	r.until("serving " + name + " at " + path)
	if names, err := daemon.Ask(path); err != nil || len(names) != 1 || names[0] != name {
		t.Errorf("ports %q, %v", names, err)
	}
	var other result
	rig.Must(t, p.Do(pair.A, func() error { other = run(t, command(t, "daemon", "-i", name, "--socket", path+"2")); return nil }))
	other.ends(t, exitFailed)
	contains(t, other.stderr, fmt.Sprintf("in use by pid %d (stag daemon)", r.cmd.Process.Pid), "programs share one by stag daemon and stag run")
	cmd := command(t, "run", "--socket", path, "--device", name, "--", "sh", "-c", "echo $STAG_DAEMON")
	cmd.Env = append(os.Environ(), "STAG_VERBS="+fakeLibraries(t))
	rig.Must(t, p.Do(pair.A, func() error { other = run(t, cmd); return nil }))
	other.ends(t, 0)
	if strings.TrimSpace(other.stdout) != path {
		t.Errorf("%q, %q", other.stdout, other.stderr)
	}
	rig.Must(t, r.cmd.Process.Signal(os.Interrupt))
	r.exits(0)
}

// A daemon that stag run has started for an interface ends after the program, and leaves the
// interface.
func TestRunStartsDaemonForInterface(t *testing.T) {
	need.Root(t)
	p := netns.XDPPair(t, pair.Config{})
	before := swept(t)
	name, path := p.Ends[pair.A].Name, filepath.Join(t.TempDir(), "stagd.sock")
	cmd := command(t, "run", "--socket", path, "--device", name, "--", "sh", "-c", "test -S $STAG_DAEMON && exit 3")
	cmd.Env = append(os.Environ(), "STAG_VERBS="+fakeLibraries(t))
	var r result
	rig.Must(t, p.Do(pair.A, func() error { r = run(t, cmd); return nil }))
	r.ends(t, 3)
	rig.Eventually(t, "the daemon has gone", func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
	before.gone(t)
}

// stag show knows the daemon and its clients.
func TestDaemonShows(t *testing.T) {
	r, path := aDaemon(t)
	stop := make(chan struct{})
	over := make(chan error, 1)
	go func() {
		over <- func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if _, err := daemon.Ask(path); err != nil {
					return err
				}
			}
		}()
	}()
	rig.Eventually(t, "a client is shown", func() bool {
		shown := run(t, command(t, "show", "clients", "--json"))
		var rows []struct {
			PID       int
			Client    int
			ClientPID int    `json:"client_pid"`
			Program   string `json:"client_program"`
		}
		rig.Must(t, json.Unmarshal([]byte(shown.stdout), &rows))
		for _, row := range rows {
			if row.PID == r.cmd.Process.Pid && row.ClientPID == os.Getpid() && row.Program != "" {
				return true
			}
		}
		return false
	})
	close(stop)
	rig.Must(t, <-over)
	rig.Must(t, r.cmd.Process.Signal(os.Interrupt))
	r.exits(0)
}
