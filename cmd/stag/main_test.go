package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/man"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// guest is a user without rights. No other process on the machine runs as this user, so that a test can tell what its
// commands leave behind.
const guest = 63271

// binary is the path of the command, which TestMain builds once.
var binary string

// TestMain builds the command. As root, the tests have mounts of their own, with a runtime directory that the guest
// may use.
func TestMain(m *testing.M) {
	flag.Parse()
	need.OwnMounts()
	if os.Geteuid() == 0 {
		orExit(errors.Join(os.Mkdir(loader.RuntimeDir, 0o755), os.Chown(loader.RuntimeDir, guest, guest)))
	}
	dir, err := os.MkdirTemp("", "stag-cmd-")
	orExit(err)
	binary = filepath.Join(dir, "stag")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	orExit(errors.Join(err, os.Chmod(dir, 0o755)))
	code := m.Run()
	orExit(os.RemoveAll(dir))
	os.Exit(code)
}

func orExit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is an upper bound for every command, against hangs. No command comes near it.
const patience = 2 * time.Minute

// command returns the program with these arguments. It is killed when the test ends.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = "/"
	return cmd
}

// as makes cmd run as the guest with these capabilities only.
func as(cmd *exec.Cmd, caps ...uintptr) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: guest, Gid: guest},
		AmbientCaps: caps,
	}
	return cmd
}

// result is the output and the exit code of a command.
type result struct {
	code           int // exit code; -1: a signal ended the command
	stdout, stderr string
}

// run runs cmd to its end.
func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// unread runs cmd with a standard output whose reader has gone, demands that cmd fails, and returns its standard
// error.
func unread(t *testing.T, cmd *exec.Cmd) (said string) {
	t.Helper()
	r, w, err := os.Pipe()
	rig.Must(t, err)
	rig.Must(t, r.Close())
	defer w.Close()
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = w, &errs
	cmd.Run() // the error only has the exit code
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("%q: exit code %d", cmd.Args, code)
	}
	return errs.String()
}

// lines returns the lines of a text that ends with a newline.
func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// ends demands that the exit code is code.
func (r result) ends(t *testing.T, code int) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
}

// TestUsage: a wrong command line gives one line and exit code 2.
func TestUsage(t *testing.T) {
	for args, says := range map[string]string{
		"pong":                             "unknown command",
		"--loud":                           "--loud",
		"demo --loud":                      "--loud",
		"demo now":                         `"now"`,
		"demo --size 0":                    "choose 1 to",
		"demo --size -1":                   "-1",
		"demo --size 1048577":              "choose 1 to",
		"demo --size 18446744073709551616": "size",
		"demo --msg 0":                     "--msg",
		"demo --msg 16385":                 "choose 1 to 16384",
		"demo --mtu 1279":                  "choose 1280",
		"demo --mtu 65536":                 "65535",
		"demo --kernel-port --generic":     "--generic",
		"demo --kernel-port --mtu 1500":    "--mtu",
		"demo --generic --kernel-port":     "choose one",
		"doctor a b":                       `"b"`,
		"doctor --queues -1":               "--queues",
		"doctor --chunk 1024":              "2048",
		"doctor --queues two":              `invalid argument "two" for "--queues" flag: invalid syntax: see stag doctor --help`,
		"demo --size 1x":                   `invalid argument "1x" for "--size" flag: invalid syntax: see`,
		"help pong":                        `no command "pong": see stag --help`,
		"help perf pong":                   `no command "perf pong"`,
		"help demo now":                    `no command "demo now"`,
	} {
		t.Run(args, func(t *testing.T) {
			r := run(t, command(t, strings.Fields(args)...))
			r.ends(t, exitUsage)
			if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: ") || !strings.Contains(r.stderr, says) {
				t.Errorf("printed %q and %q, want one line of error that says %q", r.stdout, r.stderr, says)
			}
		})
	}
	r := run(t, command(t, "doctor", ""))
	r.ends(t, exitUsage)
}

// mostHelpLines is the limit for the text of --help before the flags. Empty lines and the list of commands do not
// count.
const mostHelpLines = 15

// TestHelpIsShort: the help of every command begins with an example and is short. The manual page has the rest.
func TestHelpIsShort(t *testing.T) {
	commands := []*cobra.Command{root()}
	for len(commands) > 0 {
		cmd := commands[0]
		commands = append(commands[1:], cmd.Commands()...)
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(out.String(), "\nFlags:")
		text, _, _ = strings.Cut(text, "\nGlobal Flags:")
		text, _, _ = strings.Cut(text, "\nCommands:")
		if !strings.HasPrefix(text, "Examples:\n  ") {
			t.Errorf("%s --help does not begin with an example:\n%s", cmd.CommandPath(), text)
		}
		lines := 0
		for line := range strings.Lines(text) {
			if len(line) > 89 {
				t.Errorf("%s --help has a line of %d octets: %s", cmd.CommandPath(), len(line)-1, line)
			}
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		if lines > mostHelpLines {
			t.Errorf("%s --help has %d lines of text before the flags, %d at most:\n%s", cmd.CommandPath(), lines, mostHelpLines, text)
		}
		if text := cmd.Annotations[man.More]; text != "" && !strings.Contains(out.String(), "More: man "+man.Name(cmd)) {
			t.Errorf("%s --help does not name the manual page", cmd.CommandPath())
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help", "demo"}, {"help", "perf", "write_bw"}, {"help"}, {"doctor", "--help"}} {
		r := run(t, command(t, args...))
		r.ends(t, 0)
		if r.stderr != "" || !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%q printed %q and %q", args, r.stdout, r.stderr)
		}
	}
}
