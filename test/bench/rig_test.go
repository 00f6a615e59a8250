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
	"testing"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// patience limits a run of the benchmark in a test. No run comes near it.
const patience = 2 * time.Minute

// binary is the path of the benchmark, which TestMain builds.
var binary string

// TestMain builds the benchmark. If it runs as root, the tests have their own mounts.
func TestMain(m *testing.M) {
	flag.Parse()
	need.OwnMounts()
	if os.Geteuid() == 0 {
		orExit(os.Mkdir(loader.RuntimeDir, 0o755))
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

// benchmark returns the benchmark with its arguments. It is killed when the test ends.
func benchmark(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, binary, args...)
}

// result is the output of a run.
type result struct{ stdout, stderr string }

// run runs cmd to its end and checks the exit code.
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
	rig.Must(t, err)
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	rig.Must(t, cmd.Start())
	w.Close()
	sent := false
	for s := bufio.NewScanner(r); s.Scan(); {
		last = s.Text()
		if !sent && strings.Contains(last, word) {
			sent = true
			rig.Must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	if !sent {
		t.Errorf("it never printed %q", word)
	}
	_ = cmd.Wait() // the exit code says how it ended
	return cmd.ProcessState.ExitCode(), last
}
