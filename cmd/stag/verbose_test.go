package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/control"
)

// TestVerbose: with -v, before or after the command's name, the command logs connections, QPs and interfaces to standard
// error. The other output stays the same.
func TestVerbose(t *testing.T) {
	demo := []string{"demo", "--kernel-port", "--size", "1", "--json"}
	quiet := run(t, command(t, demo...))
	quiet.ends(t, 0)
	if strings.Contains(quiet.stderr, "level=") {
		t.Errorf("a log that nobody asked for: %s", quiet.stderr)
	}
	for _, args := range [][]string{append(demo, "-v"), append([]string{"-v"}, demo...), append(demo, "--verbose")} {
		r := run(t, command(t, args...))
		r.ends(t, 0)
		for _, want := range []string{`level=INFO msg="QP created" side=A`, `msg="QP connected" side=B`} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%q logs no %q: %s", args, want, r.stderr)
			}
		}
		if strings.Contains(r.stdout, "level=") || strings.Contains(r.stderr, "level=DEBUG") {
			t.Errorf("%q printed %s, and logged %s", args, r.stdout, r.stderr)
		}
	}
}

// TestVeryVerbose: -vv logs the steps of opening an interface and of a take-over, and the users of the control
// socket. -v logs none of these.
func TestVeryVerbose(t *testing.T) {
	for flag, want := range map[string]int{"-v": 0, "-vv": 1} {
		e := perfAcrossPair(t, "write_bw", "-n", "10", "-s", "64", flag)
		show := run(t, command(t, "show", "devices", "-p", fmt.Sprint(e.server.cmd.Process.Pid), flag))
		show.ends(t, 0)
		r := e.call()
		r.ends(t, 0)
		if code := e.server.rest(); code != 0 {
			t.Fatalf("the server's exit code is %d: %q", code, e.server.said)
		}
		for what, in := range map[string]string{
			`level=DEBUG msg="queue claimed" link=` + e.pair.Ends[pair.A].Name + " queue=0":      r.stderr,
			`level=DEBUG msg="program is there"`:                                                 r.stderr,
			`level=DEBUG msg="socket bound"`:                                                     r.stderr,
			`level=DEBUG msg="control socket opened" path=` + control.Dir():                      r.stderr,
			`level=DEBUG msg="take-over: way found"`:                                             r.stderr,
			`level=DEBUG msg="take-over: state installed" flow=0x100000`:                         r.stderr,
			`level=DEBUG msg="engine asked" socket=`:                                             show.stderr,
			`level=DEBUG msg="control socket: asked" path=/v1/report query="parts=devices" pid=`: strings.Join(e.server.said, "\n"),
		} {
			if n := strings.Count(in, what); n != want {
				t.Errorf("%s: %s is there %d times, want %d:\n%s", flag, what, n, want, in)
			}
		}
		if !strings.Contains(r.stderr, `level=INFO msg="flow taken over" flow=0x100000`) {
			t.Errorf("%s: no take-over in %s", flag, r.stderr)
		}
	}
}

// TestNewLogger: each level is logged from its verbosity on.
func TestNewLogger(t *testing.T) {
	for verbosity, want := range []string{"", "level=INFO", "level=DEBUG level=INFO", "level=DEBUG level=INFO"} {
		var b strings.Builder
		l := newLogger(&b, verbosity)
		l.Debug("a")
		l.Info("b")
		var levels []string
		for _, word := range strings.Fields(b.String()) {
			if strings.HasPrefix(word, "level=") {
				levels = append(levels, word)
			}
		}
		if got := strings.Join(levels, " "); got != want {
			t.Errorf("verbosity %d: %q, want %q", verbosity, got, want)
		}
	}
}

// TestLoggerAnywhere: a context without a logger gets one that drops everything.
func TestLoggerAnywhere(t *testing.T) {
	logger(t.Context()).Error("dropped")
	var b strings.Builder
	logger(withLogger(t.Context(), newLogger(&b, 1))).Info("kept")
	if !strings.Contains(b.String(), "kept") {
		t.Errorf("logged %q", b.String())
	}
}

// TestPingDebug: rping's -d also enables the log, and rping's -v prints data.
func TestPingDebug(t *testing.T) {
	r := run(t, command(t, "ping", "-c", "-a", "127.0.0.1", "-p", "1", "--kernel-port", "-C", "1", "-d", "-v"))
	r.ends(t, exitFailed)
	if !strings.Contains(r.stderr, `level=INFO msg="QP created"`) {
		t.Errorf("logged %q", r.stderr)
	}
}
