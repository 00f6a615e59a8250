package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/load"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// newLoadable returns a pair on which the test will load programs. They are unloaded when the test ends.
func newLoadable(t *testing.T, c pair.Config) *pair.Pair {
	t.Helper()
	p := netns.XDPPair(t, c)
	t.Cleanup(func() { run(t, command(t, "unload", "--all", "--force")) })
	return p
}

// at runs the command within a side's namespace.
func at(t *testing.T, p *pair.Pair, side pair.Side, args ...string) (r result) {
	t.Helper()
	rig.Must(t, p.Do(side, func() error { r = run(t, command(t, args...)); return nil }))
	return r
}

var (
	volatileInstance = regexp.MustCompile(`\b(veth-[ab])-\d+\b`)
	volatileOwner    = regexp.MustCompile(`pid PID \([^)]*\)`)
)

// told returns the output of r, with the volatile parts masked.
func told(r result) string {
	text := volatileInstance.ReplaceAllString(mask(r.stdout+r.stderr), "$1-NETNS")
	return volatileOwner.ReplaceAllString(text, "pid PID (NAME)")
}

// TestLoadUnload: load and unload print the expected text and JSON.
func TestLoadUnload(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	for _, step := range []struct {
		golden string
		args   []string
		code   int
	}{
		{"load", []string{"load", near, "--tune", "--max-flows", "1000"}, 0},
		{"load_again", []string{"load", near}, 0},
		{"load_tuned", []string{"load", near, "--tune=throughput"}, 0},
		{"load_otherwise", []string{"load", near, "--max-flows", "2000"}, exitFailed},
		{"unload", []string{"unload", near}, 0},
		{"unload_again", []string{"unload", near}, exitFailed},
	} {
		r := at(t, p, pair.A, step.args...)
		r.ends(t, step.code)
		golden(t, step.golden, told(r))
	}
	r := at(t, p, pair.A, "load", near, "--json", "--tune=throughput")
	schema(t, "load", r.stdout)
	l := decode[load.Loaded](t, r, 0)
	if l.Interface != near || l.Mode != "native" || !strings.HasPrefix(l.Instance, near+"-") || l.Program == 0 || l.Queues != 1 || l.MaxFlows != 65536 || len(l.Settings) == 0 {
		t.Errorf("%+v", l)
	}
	r = at(t, p, pair.A, "unload", near, "--json")
	schema(t, "unload", r.stdout)
	if u := decode[load.Result](t, r, 0); len(u.Unloaded) != 1 || u.Unloaded[0].Program != l.Program || u.Unloaded[0].Instance != l.Instance {
		t.Errorf("%+v", u)
	}
	if r := at(t, p, pair.A, "unload", near, "--json"); r.code != exitFailed || r.stderr == "" {
		t.Errorf("%+v", r)
	}
}

// TestLoadGeneric: load works in generic mode with receive offload, with and without tuning.
func TestLoadGeneric(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	in(t, p, func() error { return loader.SetGRO(near, true) })
	r := at(t, p, pair.A, "load", near, "--generic")
	r.ends(t, exitFailed)
	golden(t, "load_generic_untuned", told(r))
	r = at(t, p, pair.A, "load", near, "--generic", "--tune")
	r.ends(t, 0)
	golden(t, "load_generic", told(r))
	r = at(t, p, pair.A, "unload", near)
	r.ends(t, 0)
	golden(t, "unload_generic", told(r))
}

// TestLoadOneInstance: two interfaces are loaded under one instance name, and that name unloads both.
func TestLoadOneInstance(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	for _, side := range []pair.Side{pair.A, pair.B} {
		at(t, p, side, "load", p.Ends[side].Name, "--instance", "storage").ends(t, 0)
	}
	r := at(t, p, pair.A, "__completeNoDesc", "unload", "--instance", "")
	contains(t, r.stdout, "storage\n")
	r = at(t, p, pair.A, "unload", p.Ends[pair.B].Name) // this interface is not in this namespace
	r.ends(t, exitFailed)
	contains(t, r.stderr, "no network interface", "storage", "--instance")
	at(t, p, pair.A, "unload", p.Ends[pair.A].Name).ends(t, 0)
	r = at(t, p, pair.A, "unload", "--instance", "storage")
	r.ends(t, 0)
	contains(t, r.stdout, "the interface that was index", "of instance storage")
	r = at(t, p, pair.A, "unload", "--instance", "storage")
	r.ends(t, exitFailed)
	golden(t, "unload_missing", told(r))
	at(t, p, pair.A, "unload", "--all").ends(t, 0)
}

// adopting starts a server on the loaded interface of side A, and a client on side B that pings it without end.
func adopting(t *testing.T, p *pair.Pair) (s, c *running) {
	t.Helper()
	in(t, p, func() error {
		s = listening(t, command(t, "ping", "-s", "-P", "-i", p.Ends[pair.A].Name))
		return nil
	})
	client := command(t, "ping", "-c", "-i", p.Ends[pair.B].Name, "-a", p.Ends[pair.A].V4.Addr().String(), "-v")
	rig.Must(t, p.Do(pair.B, func() error {
		c = launch(t, client)
		c.until("ping data")
		return nil
	}))
	t.Cleanup(func() { client.Process.Kill() })
	return s, c
}

// TestUnloadInUse: unload refuses while a process uses the program, and --force ends its connection.
func TestUnloadInUse(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	at(t, p, pair.A, "load", near).ends(t, 0)
	s, _ := adopting(t, p)
	r := at(t, p, pair.A, "unload", near)
	r.ends(t, exitFailed)
	contains(t, r.stderr, fmt.Sprintf("pid %d (stag ping) with 1 flow", s.cmd.Process.Pid))
	golden(t, "unload_used", told(r))
	r = at(t, p, pair.A, "unload", "--all")
	r.ends(t, exitFailed)
	if said := strings.Count(r.stderr, "in use by"); said != 1 {
		t.Errorf("one process is named %d times: %q", said, r.stderr)
	}
	r = at(t, p, pair.A, "unload", near, "--force", "--json")
	schema(t, "unload", r.stdout)
	u := decode[load.Result](t, r, 0)
	if len(u.Unloaded) != 1 || len(u.Unloaded[0].Lost) != 1 || u.Unloaded[0].Lost[0] != (load.Lost{PID: s.cmd.Process.Pid, Flows: 1}) {
		t.Errorf("%+v", u)
	}
	rig.Must(t, s.cmd.Process.Kill())
}

// TestUnloadForced: the text says what was lost. A process that lost a connection or a listener ends with an error
// that gives the reason.
func TestUnloadForced(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	at(t, p, pair.A, "load", p.Ends[pair.A].Name).ends(t, 0)
	s, c := adopting(t, p)
	r := at(t, p, pair.A, "unload", p.Ends[pair.A].Name, "--force")
	r.ends(t, 0)
	golden(t, "unload_forced", told(r))
	contains(t, s.all(exitFailed), "the steering program was detached from "+p.Ends[pair.A].Name)
	contains(t, c.all(exitFailed), "reset by peer")
}

// TestUnloadDead: unload removes and counts the entries of a killed process. The next process can still adopt the
// program.
func TestUnloadDead(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	at(t, p, pair.A, "load", near).ends(t, 0)
	for range 2 {
		s, c := adopting(t, p)
		for _, x := range []*running{s, c} {
			rig.Must(t, x.cmd.Process.Kill())
			x.rest()
		}
	}
	r := at(t, p, pair.A, "unload", near)
	r.ends(t, 0)
	golden(t, "unload_dead", told(r))
}

// TestUnloadMoved: unload finds renamed, moved and removed interfaces by the name under which they were loaded.
func TestUnloadMoved(t *testing.T) {
	for name, change := range map[string]func(p *pair.Pair, l netlink.Link, there *os.File) error{
		"renamed": func(_ *pair.Pair, l netlink.Link, _ *os.File) error {
			return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "renamed0"), netlink.LinkSetUp(l))
		},
		"moved": func(_ *pair.Pair, l netlink.Link, there *os.File) error {
			return netlink.LinkSetNsFd(l, int(there.Fd()))
		},
		"removed": func(_ *pair.Pair, l netlink.Link, _ *os.File) error { return netlink.LinkDel(l) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newLoadable(t, pair.Config{})
			near := p.Ends[pair.A].Name
			at(t, p, pair.A, "load", near, "--tune=throughput").ends(t, 0)
			var there *os.File
			rig.Must(t, p.Do(pair.B, func() (err error) {
				there, err = os.Open("/proc/thread-self/ns/net")
				return err
			}))
			defer there.Close()
			in(t, p, func() error {
				l, err := netlink.LinkByName(near)
				rig.Must(t, err)
				return change(p, l, there)
			})
			r := at(t, p, pair.A, "unload", near)
			r.ends(t, 0)
			golden(t, "unload_"+name, regexp.MustCompile(`index \d+`).ReplaceAllString(told(r), "index N"))
			if left, _ := filepath.Glob(loader.Root + "/*"); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestLoadCleans: the next load reports what it has removed.
func TestLoadCleans(t *testing.T) {
	old, p := newLoadable(t, pair.Config{}), newLoadable(t, pair.Config{})
	at(t, old, pair.A, "load", old.Ends[pair.A].Name, "--instance", "old", "--tune=throughput").ends(t, 0)
	rig.Must(t, old.Close())
	r := at(t, p, pair.A, "load", p.Ends[pair.A].Name)
	r.ends(t, 0)
	contains(t, r.stdout, "removed the pins in /sys/fs/bpf/stag/old/", "gone")
}

// claims returns the files of loaded programs in loader.RuntimeDir: not the sockets of engines, and not the records of
// attached disks, which are in a directory of their own.
func claims(t *testing.T) (names []string) {
	entries, err := os.ReadDir(loader.RuntimeDir)
	rig.Must(t, err)
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), "e") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestLoadKilledAnywhere: if load is killed at any point, the next load works, and nothing is left after its unload.
func TestLoadKilledAnywhere(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	for i := range 20 {
		cmd := command(t, "load", near, "--tune=throughput")
		in(t, p, cmd.Start)
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		rig.Must(t, cmd.Process.Kill())
		cmd.Wait()
		r := at(t, p, pair.A, "load", near, "--tune=throughput")
		if r.code != 0 { // the load was complete before the kill
			contains(t, r.stderr, "already")
		}
		at(t, p, pair.A, "unload", near).ends(t, 0)
		left, _ := filepath.Glob(loader.Root + "/*")
		files := claims(t)
		if len(left)+len(files) != 0 {
			t.Fatalf("killed after %d ms, left: %v %v", 2*i, left, files)
		}
	}
}

// TestUnloadKilledAnywhere: if unload is killed at any point, the next load or unload removes what is left.
func TestUnloadKilledAnywhere(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	for i := range 20 {
		at(t, p, pair.A, "load", near, "--tune=throughput").ends(t, 0)
		cmd := command(t, "unload", near)
		in(t, p, cmd.Start)
		time.Sleep(time.Duration(i) * time.Millisecond)
		rig.Must(t, cmd.Process.Kill())
		cmd.Wait()
		if i%2 == 0 { // the next load removes what is left
			if r := at(t, p, pair.A, "load", near); r.code != 0 {
				contains(t, r.stderr, "already")
			}
			at(t, p, pair.A, "unload", near).ends(t, 0)
		} else if r := at(t, p, pair.A, "unload", near); r.code != 0 {
			contains(t, r.stderr, "no stag is loaded")
		}
		left, _ := filepath.Glob(loader.Root + "/*")
		files := claims(t)
		if len(left)+len(files) != 0 {
			t.Fatalf("killed after %d ms, left: %v %v", i, left, files)
		}
	}
}

// TestLoadOldName: if an interface gets the name of a loaded interface, load does not add it to the instance of the
// loaded interface.
func TestLoadOldName(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	at(t, p, pair.A, "load", near).ends(t, 0)
	in(t, p, func() error {
		l, err := netlink.LinkByName(near)
		rig.Must(t, err)
		rig.Must(t, netlink.LinkSetDown(l))
		rig.Must(t, netlink.LinkSetName(l, "old0"))
		at := netlink.NewLinkAttrs()
		at.Name = near
		veth := netlink.NewVeth(at)
		veth.PeerName = "far0"
		return netlink.LinkAdd(veth)
	})
	r := at(t, p, pair.A, "load", near)
	r.ends(t, exitFailed)
	golden(t, "load_old_name", told(r))
	r = at(t, p, pair.A, "unload", near)
	r.ends(t, exitFailed)
	contains(t, r.stderr, "no stag is loaded on "+near, "stag unload --instance")
	at(t, p, pair.A, "load", near, "--instance", "other").ends(t, 0)
	at(t, p, pair.A, "unload", near).ends(t, 0)
	in(t, p, func() error {
		l, err := netlink.LinkByName("old0")
		rig.Must(t, err)
		return netlink.LinkDel(l)
	})
	r = at(t, p, pair.A, "unload", near) // near now names another interface; the interface that was loaded as near is gone
	r.ends(t, 0)
	contains(t, r.stdout, "pins removed")
}

// TestLoadForeign: load leaves a foreign program alone.
func TestLoadForeign(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	in(t, p, func() error { spoilForeign(t, p, near); return nil })
	for _, command := range []string{"load", "unload"} {
		r := at(t, p, pair.A, command, near)
		r.ends(t, exitFailed)
		contains(t, r.stderr, "another XDP program is on "+near)
	}
}

// TestUnloadPrivate: unload does not remove a program that a process loaded for itself.
func TestUnloadPrivate(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	var s *running
	in(t, p, func() error { s = listening(t, command(t, "ping", "-s", "-P", "-i", near)); return nil })
	for _, args := range [][]string{{"unload", near}, {"unload", near, "--force"}, {"load", near}} {
		r := at(t, p, pair.A, args...)
		r.ends(t, exitFailed)
		contains(t, r.stderr, fmt.Sprintf("pid %d", s.cmd.Process.Pid))
	}
	rig.Must(t, s.cmd.Process.Signal(os.Interrupt))
	s.all(0)
}

// TestLoadWithoutRights: load prints one line that says what to do, and leaves nothing.
func TestLoadWithoutRights(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	at(t, p, pair.A, "load", near).ends(t, 0)
	nobody := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return cmd
	}
	for _, args := range [][]string{{"load", near}, {"unload", near}, {"unload", near, "--force"}, {"unload", "--all", "--force"}} {
		for _, who := range []*exec.Cmd{
			nobody(command(t, args...)),
			as(command(t, args...), unix.CAP_NET_ADMIN),
			as(command(t, args...), unix.CAP_NET_ADMIN, unix.CAP_BPF, unix.CAP_NET_RAW), // may load, but not find out which process has a program
		} {
			r := inside(t, p, who)
			r.ends(t, exitFailed)
			if strings.Count(r.stderr, "\n") != 1 || r.stdout != "" || !strings.Contains(r.stderr, "root") || strings.Contains(r.stderr, "xdp off") {
				t.Errorf("%v printed %q and %q", args, r.stdout, r.stderr)
			}
		}
	}
	at(t, p, pair.A, "unload", near).ends(t, 0)
	r := inside(t, p, nobody(command(t, "load", near)))
	r.ends(t, exitFailed)
	golden(t, "load_rights", told(r))
}

// TestLoadNoBPFFS: load needs a BPF file system for its pins, and `ip netns exec` hides that file system.
func TestLoadNoBPFFS(t *testing.T) {
	p := newLoadable(t, pair.Config{})
	near := p.Ends[pair.A].Name
	at(t, p, pair.A, "load", near).ends(t, 0)
	for _, args := range [][]string{{"load", near}, {"unload", near}, {"unload", "--all"}, {"ping", "-s", "-i", near}} {
		cmd := command(t, args...)
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `mount -t sysfs sysfs /sys && exec "$0" "$@"`, binary}, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		r := inside(t, p, cmd)
		r.ends(t, exitFailed)
		contains(t, r.stderr, "ip netns exec")
		if strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.stderr, "pid") {
			t.Errorf("%q", r.stderr)
		}
	}
}

func TestLoadUsage(t *testing.T) {
	for args, says := range map[string]string{
		"load":                            "name the interface",
		"load a b":                        `"b"`,
		"load eth0 --max-flows 0":         "choose 1 to",
		"load eth0 --max-flows 2000000":   "choose 1 to",
		"load eth0 --queues -1":           "--queues",
		"load eth0 --orphan-wait -1s":     "choose 0s to",
		"load eth0 --tune=speed":          "choose basics, latency or throughput",
		"load eth0 --tune=":               "choose basics, latency or throughput",
		"load eth0 --instance a.b":        "letters",
		"load eth0 --instance ../x":       "letters",
		"load eth0 --instance=":           "letters",
		"unload":                          "choose one",
		"unload eth0 --all":               "choose one",
		"unload eth0 --instance x":        "choose one",
		"unload --instance x/y":           "letters",
		"unload --all --instance storage": "choose one",
	} {
		r := run(t, command(t, strings.Fields(args)...))
		r.ends(t, exitUsage)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, says) {
			t.Errorf("%s printed %q and %q, want one line that says %q", args, r.stdout, r.stderr, says)
		}
	}
	need.Root(t)
	r := run(t, command(t, "load", "nothere0"))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "no network interface nothere0")
}
