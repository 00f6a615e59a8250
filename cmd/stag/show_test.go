package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
	"github.com/stag-rdma/stag/cmd/stag/internal/show"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// showRow has the members that all rows have.
type showRow struct {
	PID      *int    `json:"pid"`
	Program  *string `json:"program"`
	Adapter  *int    `json:"adapter"`
	Instance string  `json:"instance"`
	Name     string  `json:"name"`
	State    string  `json:"state"`
}

func showRows(t *testing.T, r result) (rows []showRow) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil || rows == nil {
		t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
	}
	return rows
}

// TestShowUsage: a wrong command line gives one line and exit code 2.
func TestShowUsage(t *testing.T) {
	for args, says := range map[string]string{
		"":                     "choose one of devices, flows, qps, mrs, cqs, srqs, queues, stats",
		"sessions":             `"sessions" is nothing to show: choose one of devices, flows`,
		"q":                    `"q" can be qps or queues`,
		"flows a b":            `"b"`,
		"flows eth1":           "give an address",
		"qps first":            "no number",
		"mrs stag":             "no STag",
		"flows -p 0":           "-p 0",
		"flows -p -3":          "-p -3",
		"flows -p one":         "one",
		"flows -w 0":           "choose 0.1 seconds or more",
		"flows -w 0.05":        "choose 0.1 seconds or more",
		"flows -w -1":          "choose 0.1 seconds or more",
		"flows -w NaN":         "choose 0.1 seconds or more",
		"flows -w Inf":         "choose 0.1 seconds or more",
		"flows -w soon":        "soon",
		"flows --interface=":   "name of an interface",
		"devices --loud":       "--loud",
		"stats eth1 --watch 0": "choose 0.1 seconds",
	} {
		r := run(t, command(t, append([]string{"show"}, strings.Fields(args)...)...))
		r.ends(t, exitUsage)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: show: ") || !strings.Contains(r.stderr, says) {
			t.Errorf("%q printed %q and %q, want one line of error that says %q", args, r.stdout, r.stderr, says)
		}
	}
	r := run(t, command(t, "show", "flows", ""))
	r.ends(t, exitUsage)
}

// TestShowNothing: without engines, show says so and succeeds. If --pid names a process that is no engine, show
// fails.
func TestShowNothing(t *testing.T) {
	h := newHost(t)
	for _, subject := range show.Subjects {
		r := h.show(subject)
		r.ends(t, 0)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: show: no engine ") {
			t.Errorf("printed %q and %q", r.stdout, r.stderr)
		}
		r = h.show(subject, "--json")
		r.ends(t, 0)
		schema(t, "show-"+subject, r.stdout)
		if r.stdout != "[]\n" {
			t.Errorf("printed %q", r.stdout)
		}
		r = h.show(subject, "-p", "1", "--json")
		r.ends(t, exitFailed)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "process 1 has no adapter") {
			t.Errorf("printed %q and %q", r.stdout, r.stderr)
		}
	}
}

// TestShowOthersBeside: if an engine misbehaves, show prints the other engines and a line about this engine. show fails
// only if -p names this engine.
func TestShowOthersBeside(t *testing.T) {
	for how, says := range map[string]string{
		"hang":   "no answer from pid PID, adapter 1, within 2s",
		"schema": `has schema "3", this stag "2"`,
		"lie":    "answers as adapter 7: it is left out",
		"refuse": "broken;  [2J in two lines",
	} {
		t.Run(how, func(t *testing.T) {
			h := newHost(t)
			well, ill := h.act("well"), h.act(how)
			for _, c := range []struct {
				args []string
				code int
				rows int
			}{
				{nil, 0, 1}, {[]string{"-p", well.pid()}, 0, 1}, {[]string{"-p", ill.pid()}, exitFailed, 0},
			} {
				r := h.show(append([]string{"devices", "--json"}, c.args...)...)
				r.ends(t, c.code)
				schema(t, "show-devices", r.stdout)
				if rows := showRows(t, r); len(rows) != c.rows || c.rows == 1 && *rows[0].PID != well.cmd.Process.Pid {
					t.Errorf("%q: %s", c.args, r.stdout)
				}
				asked := len(c.args) == 0 || c.args[1] == ill.pid()
				if asked != strings.Contains(mask(r.stderr), mask(says)) || !asked && r.stderr != "" {
					t.Errorf("%q: %q, want %q there: %v", c.args, mask(r.stderr), says, asked)
				}
			}
		})
	}
}

// TestShowStopped: show leaves out a stopped process after a while, and shows it again when it continues.
func TestShowStopped(t *testing.T) {
	h := newHost(t)
	h.act("well")
	stopped := h.act("well")
	rig.Must(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
	awaitStopped(t, stopped.cmd.Process.Pid)
	r := h.show("devices")
	r.ends(t, 0)
	if strings.Count(r.stdout, "link act0") != 1 || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("printed %q and %q", r.stdout, r.stderr)
	}
	contains(t, r.stderr, "pid "+stopped.pid(), "is the process stopped?")
	rig.Must(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
	if r := h.show("devices"); strings.Count(r.stdout, "link act0") != 2 || r.stderr != "" {
		t.Errorf("printed %q and %q", r.stdout, r.stderr)
	}
}

// TestShowKilled: show prints a line about an engine that is killed while show asks it. The next run finds the socket
// removed.
func TestShowKilled(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "among others", true: "asked for"}[alone], func(t *testing.T) {
			h := newHost(t)
			well, dies := h.act("well"), h.act("hang")
			args, code := []string{"show", "devices"}, 0
			if alone {
				args, code = append(args, "-p", dies.pid()), exitFailed
			}
			x := launch(t, h.at(command(t, args...)))
			dies.says(t, "asked")
			rig.Must(t, dies.cmd.Process.Kill())
			said := x.all(code)
			contains(t, said, "the engine is gone: pid "+dies.pid()+", adapter 1, ended while it was asked")
			if strings.Contains(said, "pid "+well.pid()) == alone {
				t.Errorf("the other: %s", said)
			}
			dies.cmd.Wait() // the error only names the signal
			r := h.show("devices")
			r.ends(t, 0)
			if r.stderr != "" || len(h.sockets()) != 1 {
				t.Errorf("printed %q, sockets %q", r.stderr, h.sockets())
			}
		})
	}
}

// TestShowEscapes: show escapes the text of an engine, so that the text cannot control the terminal or add a line.
func TestShowEscapes(t *testing.T) {
	h := newHost(t)
	h.act("escapes")
	for _, args := range [][]string{{"devices"}, {"devices", "-v"}, {"devices", "--json"}} {
		r := h.show(args...)
		r.ends(t, 0)
		if strings.ContainsAny(r.stdout, "\x1b\u009b\u202e") || strings.Contains(r.stdout, "\nlink forged") {
			t.Errorf("%q printed %q", args, r.stdout)
		}
	}
	if rows := showRows(t, h.show("devices", "--json")); rows[0].Name != "e\u009b1m\u202e" || *rows[0].Program != "a\x1b[2Jb\nlink forged" {
		t.Errorf("the JSON says %+v", rows)
	}
}

// guest starts an actor that another user runs.
func (h host) guest(how string) acting {
	h.Helper()
	return h.act(how, func(cmd *exec.Cmd) {
		// The guest cannot read the test program at its path, so the test copies it.
		program, err := os.ReadFile("/proc/self/exe")
		rig.Must(h.T, err)
		cmd.Path = h.dir + "/engine"
		rig.Must(h.T, os.WriteFile(cmd.Path, program, 0o755))
		as(cmd)
	})
}

// TestShowOtherUsers: each user sees the engines of that user. With --all-users root also sees the engines of other users,
// with their uids. Other users see only that root has engines.
func TestShowOtherUsers(t *testing.T) {
	need.Root(t)
	h := newHost(t)
	roots, guests := h.act("well"), h.guest("well")
	ofRoot, ofGuest := "pid "+roots.pid()+" adapter", "pid "+guests.pid()+" uid "
	asGuest := func(args ...string) result {
		return run(t, as(h.at(command(t, append([]string{"show", "devices"}, args...)...))))
	}
	for _, c := range []struct {
		who   string
		r     result
		code  int
		lines []string // expected lines of standard output
		says  string   // expected text on standard error
	}{
		{"root", h.show("devices"), 0, []string{ofRoot}, ""},
		{"root, of all", h.show("devices", "--all-users"), 0, []string{ofRoot, ofGuest}, ""},
		{"root, of the guest's", h.show("devices", "--all-users", "-p", guests.pid()), 0, []string{ofGuest}, ""},
		{"root, not of the guest's", h.show("devices", "-p", guests.pid()), exitFailed, nil, "--all-users"},
		{"the guest", asGuest(), 0, []string{"pid " + guests.pid() + " adapter"}, ""},
		{"the guest, of all", asGuest("--all-users"), 0, []string{"pid " + guests.pid() + " adapter"},
			"not allowed to look into the engine of pid " + roots.pid() + ": run as root"},
		{"the guest, of root's", asGuest("-p", roots.pid()), exitFailed, nil, "no adapter open that this user can see"},
	} {
		c.r.ends(t, c.code)
		if strings.Count(c.r.stdout, "\n") != len(c.lines) || strings.Count(c.r.stderr, "\n") > 1 || (c.r.stderr == "") != (c.says == "") {
			t.Errorf("%s: %q and %q", c.who, c.r.stdout, c.r.stderr)
		}
		contains(t, c.r.stdout, c.lines...)
		contains(t, c.r.stderr, c.says)
	}
}

// TestShowUnread: show ends without a message when its reader goes away.
func TestShowUnread(t *testing.T) {
	h := newHost(t)
	h.act("well")
	for _, args := range [][]string{{}, {"--json"}, {"-w", "0.1"}, {"--json", "-w", "0.1"}} {
		cmd := h.at(command(t, append([]string{"show", "devices"}, args...)...))
		if said := unread(t, cmd); said != "" {
			t.Errorf("%q: %q", args, said)
		}
	}
}

// TestShowFullDisk: show prints one line if it cannot write.
func TestShowFullDisk(t *testing.T) {
	h := newHost(t)
	h.act("well")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	rig.Must(t, err)
	defer full.Close()
	cmd := h.at(command(t, "show", "devices"))
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = full, &errs
	cmd.Run() // the error only has the exit code
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(errs.String(), "no space left on device") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// TestShowCompletion: completion offers subjects, interfaces and processes.
func TestShowCompletion(t *testing.T) {
	h := newHost(t)
	a := h.act("well")
	links, err := doctor.Interfaces()
	rig.Must(t, err)
	for args, want := range map[string][]string{
		"show ":          show.Subjects,
		"show stats ":    links,
		"show dev ":      links,
		"show qps -i ":   links,
		"show devices -": {"--json", "--watch"},
		"show flows -p ": {a.pid()},
	} {
		r := run(t, h.at(command(t, append([]string{"__completeNoDesc"}, strings.Split(args, " ")...)...)))
		r.ends(t, 0)
		for _, w := range want {
			if !strings.Contains("\n"+r.stdout, "\n"+w+"\n") {
				t.Errorf("%q is completed to %q, want %q", args, r.stdout, w)
			}
		}
	}
	if r := run(t, command(t, "__completeNoDesc", "show", "qps", "")); !strings.HasPrefix(r.stdout, ":4\n") {
		t.Errorf("completed to %q", r.stdout)
	}
}

// TestShowInterrupted: Ctrl-C ends show while an engine does not answer.
func TestShowInterrupted(t *testing.T) {
	h := newHost(t)
	a := h.act("hang")
	x := launch(t, h.at(command(t, "show", "devices")))
	a.says(t, "asked")
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	if said := x.all(exitFailed); said != "stag: show: interrupted" {
		t.Errorf("said %q", said)
	}
}

// TestShowWatchEnds: a watch of one process ends with a message when that process has gone.
func TestShowWatchEnds(t *testing.T) {
	h := newHost(t)
	a := h.act("well")
	x := launch(t, h.at(command(t, "show", "devices", "-w", "0.1", "-p", a.pid())))
	x.until("link act0")
	rig.Must(t, a.cmd.Process.Kill())
	a.cmd.Wait() // the error only names the signal
	said := x.all(exitFailed)
	last := said[strings.LastIndexByte(said, '\n')+1:]
	if !strings.HasPrefix(last, "stag: show: ") || !strings.Contains(last, a.pid()) {
		t.Errorf("the last line is %q", last)
	}
}

// TestShowKernelPort: any user sees an adapter over the kernel's TCP. Its flows belong to the kernel.
func TestShowKernelPort(t *testing.T) {
	h := newHost(t)
	port := freePort(t)
	ping := func(args ...string) *exec.Cmd {
		return h.at(command(t, append([]string{"ping", "--kernel-port", "-a", "127.0.0.1", "-p", port}, args...)...))
	}
	s := listening(t, ping("-s"))
	c := launch(t, ping("-c", "-v"))
	c.until("rdma-ping-5: ")
	go func() {
		for range c.lines { // reads on, so that the client does not block
		}
	}()
	pid := strconv.Itoa(s.cmd.Process.Pid)
	for _, subject := range show.Subjects {
		r := h.show(subject, "--json", "-p", pid)
		r.ends(t, 0)
		schema(t, "show-"+subject, r.stdout)
		if none := subject == "flows" || subject == "queues" || subject == "srqs" || subject == "iscsi" || subject == "luns" || subject == "ports" || subject == "clients"; none != (len(showRows(t, r)) == 0) {
			t.Errorf("%s: %s", subject, r.stdout)
		}
	}
	contains(t, h.show("devices", "kernel", "-p", pid).stdout, "link kernel state ACTIVE flows 1 pid "+pid)
	contains(t, h.show("qp", "-p", pid).stdout, "link kernel lqpn ", "state RTS", "src 127.0.0.1:"+port, "role responder")
	contains(t, h.show("flows", "-p", pid).stderr, "over the kernel's TCP, where ss -tin shows them")
	rig.Must(t, c.cmd.Process.Signal(os.Interrupt))
	c.cmd.Wait() // the test does not need the output
	s.all(0)
}
