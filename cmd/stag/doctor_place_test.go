package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	probes "github.com/stag-rdma/stag/loader/doctor"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// row returns the row of a report with this name.
func row(t *testing.T, r doctor.Report, name string) doctor.Row {
	t.Helper()
	for _, row := range append(r.Host, r.Link...) {
		if row.Name == name {
			return row
		}
	}
	t.Fatalf("no row %q", name)
	return doctor.Row{}
}

// nameSpace gives the network namespace of side A a name, as ip netns does.
func nameSpace(t *testing.T, p *pair.Pair, name string) {
	t.Helper()
	rig.Must(t, os.MkdirAll("/run/netns", 0o755))
	file := filepath.Join("/run/netns", name)
	rig.Must(t, os.WriteFile(file, nil, 0o600))
	t.Cleanup(func() { rig.Must(t, os.Remove(file)) })
	in(t, p, func() error { return unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "") })
	t.Cleanup(func() { rig.Must(t, unix.Unmount(file, unix.MNT_DETACH)) })
}

// TestDoctorNamedSpace: for an interface in another namespace, doctor prints a command, and the command works.
func TestDoctorNamedSpace(t *testing.T) {
	need.Tool(t, "nsenter")
	p := netns.XDPPair(t, pair.Config{})
	nameSpace(t, p, "blue")
	near := p.Ends[pair.A].Name
	r := run(t, command(t, "doctor", near))
	r.ends(t, exitFailed)
	said := regexp.MustCompile(`(?m)^  link: (nsenter --net=/run/netns/blue) stag (doctor ` + near + `)$`).FindStringSubmatch(r.stdout)
	if said == nil {
		t.Fatalf("no command that looks there:\n%s", r.stdout)
	}
	there := append(strings.Fields(said[1]), binary)
	cmd := exec.Command(there[0], append(append(there[1:], strings.Fields(said[2])...), "--json")...)
	report := decode[doctor.Report](t, run(t, cmd), 0)
	if got := row(t, report, "network namespace").Detail; got != `"blue"` {
		t.Errorf("the network namespace is %s", got)
	}
	if got := row(t, report, "link"); got.Status != probes.OK {
		t.Errorf("%+v", got)
	}
}

// TestDoctorInUserSpace: capabilities of a user namespace are reported as present, but not as enough to load a
// program.
func TestDoctorInUserSpace(t *testing.T) {
	need.Root(t)
	need.Netns(t)
	cmd := command(t, "doctor", "--json")
	self := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: self, GidMappings: self}
	r := decode[doctor.Report](t, run(t, cmd), exitFailed)
	if got := row(t, r, "user namespace"); got.Status != probes.Hint || !strings.Contains(got.Detail, "one of its own") {
		t.Errorf("%+v", got)
	}
	if got := row(t, r, "capabilities"); got.Status != probes.OK {
		t.Errorf("%+v", got)
	}
	if got := row(t, r, "XDP program"); got.Status != probes.Bad {
		t.Errorf("%+v", got)
	}
}

// TestDoctorBesideStag: a user without the right to inspect a program still learns which process it belongs to.
func TestDoctorBesideStag(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	in(t, p, func() error { spoilStag(t, p, p.Ends[pair.A].Name); return nil })
	r := decode[doctor.Report](t, inside(t, p, as(command(t, "doctor", "--json", p.Ends[pair.A].Name))), exitFailed)
	if got := row(t, r, "XDP hook"); got.Status != probes.Bad || !strings.Contains(got.Detail, "by the claims") || !strings.Contains(got.Detail, "pid ") {
		t.Errorf("%+v", got)
	}
	if got := row(t, r, "queue sockets"); got.Status != probes.OK || !strings.Contains(got.Detail, "stag's") {
		t.Errorf("%+v", got)
	}
	if got := row(t, r, "packets without a socket"); got.Status != probes.Unknown || got.Fix == "" || len(got.Lacks) == 0 {
		t.Errorf("%+v", got)
	}
}

// TestDoctorLimits: a low limit of open files gives a hint.
func TestDoctorLimits(t *testing.T) {
	need.Tool(t, "sh")
	cmd := command(t, "doctor", "--json")
	within(cmd, "sh", "-c", `ulimit -n 256 && exec "$0" "$@"`)
	asJSON := run(t, cmd)
	schema(t, "doctor", asJSON.stdout)
	r := decode[doctor.Report](t, result{stdout: asJSON.stdout}, 0)
	if got := row(t, r, "open files"); got.Status != probes.Hint || !strings.Contains(got.Detail, "256") || !strings.Contains(got.Fix, "LimitNOFILE=") {
		t.Errorf("%+v", got)
	}
}

// TestDoctorOtherRDMA: doctor names an RDMA device of the kernel on the same interface. The test provides the sysfs
// that lists it.
func TestDoctorOtherRDMA(t *testing.T) {
	need.Tool(t, "sh", "mount", "mkdir")
	p := netns.XDPPair(t, pair.Config{})
	near := p.Ends[pair.A].Name
	cmd := command(t, "doctor", "--json", near)
	within(cmd, "sh", "-c", `d=/sys/class/infiniband/siw0/ports/1/gid_attrs/ndevs
mount -t tmpfs tmpfs /sys/class && mkdir -p $d && echo $NEAR > $d/0 && exec "$0" "$@"`)
	cmd.Env = append(os.Environ(), "NEAR="+near)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	r := decode[doctor.Report](t, inside(t, p, cmd), 0)
	if got := row(t, r, "other RDMA devices"); got.Status != probes.Hint || !strings.Contains(got.Detail, "siw0, on "+near) {
		t.Errorf("%+v", got)
	}
}

// onTerminal returns what a terminal shows while cmd runs.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	user, program := newTerminal(t)
	cmd.Stdout = program
	rig.Must(t, cmd.Start())
	program.Close()
	var shown bytes.Buffer
	for buf := make([]byte, 4096); ; {
		n, err := user.Read(buf)
		shown.Write(buf[:n])
		if errors.Is(err, unix.EIO) { // the program has closed the terminal
			break
		}
		rig.Must(t, err)
	}
	cmd.Wait()
	return strings.ReplaceAll(shown.String(), "\r\n", "\n")
}

// escape matches an escape sequence, which a terminal does not show.
var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestDoctorColours: on a terminal doctor colours the statuses and no other text. Without a terminal, or if the user has
// turned colours off, doctor uses no colours.
func TestDoctorColours(t *testing.T) {
	plain := func(more ...string) *exec.Cmd {
		cmd := command(t, "doctor", "-v")
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "NO_COLOR=") && !strings.HasPrefix(v, "TERM=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(append(cmd.Env, "TERM=xterm"), more...)
		return cmd
	}
	coloured := onTerminal(t, plain())
	list := regexp.MustCompile("\x1b\\[(32mOK|33mhint|31mFAIL|35munknown)\x1b\\[0m").FindAllString(coloured, -1)
	if len(list) < 20 || 2*len(list) != len(escape.FindAllString(coloured, -1)) {
		t.Errorf("%d coloured statuses: %q", len(list), coloured)
	}
	for name, cmd := range map[string]*exec.Cmd{
		"NO_COLOR": plain("NO_COLOR=1"), "a dumb terminal": plain("TERM=dumb"),
	} {
		if shown := onTerminal(t, cmd); strings.Contains(shown, "\x1b") || !strings.Contains(shown, "OK") {
			t.Errorf("%s: %q", name, shown)
		}
	}
	if shown := onTerminal(t, plain("NO_COLOR=")); !strings.Contains(shown, "\x1b") {
		t.Error("an empty NO_COLOR is none, and there are no colours")
	}
	if r := run(t, plain()); strings.Contains(r.stdout, "\x1b") {
		t.Errorf("into a pipe: %q", r.stdout)
	}
}

// TestDoctorHiddenPins: ip netns exec hides the BPF file system and the pinned programs in it. doctor says so. The shell
// stands for the machine's first process, which still sees the mounts.
func TestDoctorHiddenPins(t *testing.T) {
	need.Tool(t, "unshare", "sh", "ip")
	p := netns.XDPPair(t, pair.Config{})
	nameSpace(t, p, "green")
	cmd := command(t, "doctor", "--json", p.Ends[pair.A].Name)
	within(cmd, "unshare", "--fork", "--pid", "--mount-proc", "sh", "-c", `ip netns exec green "$0" "$@"; exit $?`)
	r := decode[doctor.Report](t, run(t, cmd), 0)
	if got := row(t, r, "BPF file system"); got.Status != probes.Hint || !strings.HasPrefix(got.Detail, "hidden: ") || !strings.Contains(got.Fix, "nsenter --net=FILE") {
		t.Errorf("%+v", got)
	}
	if got := row(t, r, "pins"); got.Status != probes.Unknown || !strings.Contains(got.Detail, "is hidden") || !strings.Contains(got.Fix, "nsenter --net=FILE") {
		t.Errorf("%+v", got)
	}
	if got := row(t, r, "sysfs"); got.Status != probes.OK {
		t.Errorf("%+v", got)
	}
}
