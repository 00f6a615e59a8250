package main

import (
	"strings"
	"testing"
)

// TestVerbose: -v logs what is born and dies to standard error, before and
// behind the command's name, and changes nothing of what is printed without.
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

// TestNewLogger: each level is there from its verbosity on.
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

// TestLoggerAnywhere: a context without one has one that drops everything.
func TestLoggerAnywhere(t *testing.T) {
	logger(t.Context()).Error("dropped")
	var b strings.Builder
	logger(withLogger(t.Context(), newLogger(&b, 1))).Info("kept")
	if !strings.Contains(b.String(), "kept") {
		t.Errorf("logged %q", b.String())
	}
}

// TestPingDebug: rping's -d has the log, too, and rping's -v prints data.
func TestPingDebug(t *testing.T) {
	r := run(t, command(t, "ping", "-c", "-a", "127.0.0.1", "-p", "1", "--kernel-port", "-C", "1", "-d", "-v"))
	r.ends(t, exitFailed)
	if !strings.Contains(r.stderr, `level=INFO msg="QP created"`) {
		t.Errorf("logged %q", r.stderr)
	}
}
