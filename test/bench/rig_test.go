package main

import (
	"bufio"
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

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
)

// mountsVariable is set in the copy of the test program that has mounts of its
// own.
const mountsVariable = "STAG_TEST_MOUNTS"

// patience bounds how long a run of the benchmark takes in a test. None comes
// near it.
const patience = 2 * time.Minute

// binary is the path of the benchmark, which TestMain builds.
var binary string

// TestMain builds the benchmark. If it runs as root it first moves to a BPF file
// system and a runtime directory that no other process sees.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() == 0 {
		if os.Getenv(mountsVariable) == "" {
			os.Exit(again())
		}
		orExit(errors.Join(
			unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""),
			unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"),
			os.Mkdir(loader.RuntimeDir, 0o755),
		))
	}
	dir, err := os.MkdirTemp("", "stag-bench-")
	orExit(err)
	binary = filepath.Join(dir, "bench")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	orExit(err)
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

// again runs this program in a mount namespace of its own.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mountsVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		fmt.Fprintf(os.Stderr, "run the tests in a mount namespace: %v\n", err)
	}
	if err != nil {
		return 1
	}
	return 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// benchmark is the benchmark with its arguments. It is killed when the test ends.
func benchmark(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, binary, args...)
}

// result is what a run printed.
type result struct{ stdout, stderr string }

// run runs cmd to its end, and demands an exit code.
func run(t *testing.T, code int, cmd *exec.Cmd) (r result) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	r = result{out.String(), errs.String()}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d\n%s%s", got, code, r.stdout, r.stderr)
	}
	return r
}

// interrupted runs cmd, sends it SIGINT when it has printed the word, and returns its exit
// code and the last line that it printed.
func interrupted(t *testing.T, cmd *exec.Cmd, word string) (code int, last string) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	must(t, cmd.Start())
	w.Close()
	sent := false
	for s := bufio.NewScanner(r); s.Scan(); {
		last = s.Text()
		if !sent && strings.Contains(last, word) {
			sent = true
			must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	if !sent {
		t.Errorf("it never printed %q", word)
	}
	_ = cmd.Wait() // the exit code tells
	return cmd.ProcessState.ExitCode(), last
}
