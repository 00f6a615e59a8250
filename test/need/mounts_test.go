package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// ownVariable turns this test program into a program with its own mounts. The program
// writes a file, and fails if the variable says so.
const ownVariable = "STAG_NEED_TEST"

func TestMain(m *testing.M) {
	if file := os.Getenv(ownVariable); file != "" {
		OwnMounts()
		os.Exit(own(file))
	}
	os.Exit(m.Run())
}

// These are the exit codes of own.
const (
	notMounted = iota + 2
	notEmpty
	notWritten
)

// own checks the mounts, and leaves a file in /run.
func own(file string) int {
	for at, magic := range map[string]int64{"/sys/fs/bpf": unix.BPF_FS_MAGIC, "/run": unix.TMPFS_MAGIC} {
		var s unix.Statfs_t
		if err := unix.Statfs(at, &s); err != nil || s.Type != magic {
			return notMounted
		}
	}
	if entries, err := os.ReadDir("/run"); err != nil || len(entries) != 0 {
		return notEmpty
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return notWritten
	}
	return 0
}

// TestOwnMounts checks that no other process sees the files of a program with its own
// mounts. The exit code of the copy must be the exit code of the program.
func TestOwnMounts(t *testing.T) {
	Root(t)
	for _, c := range []struct {
		file string
		code int
	}{
		{"/run/stag-need-test", 0},
		{"/run/no/such/directory", notWritten},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), ownVariable+"="+c.file)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.code || len(out) != 0 {
			t.Errorf("%s: %v, want exit code %d\n%s", c.file, err, c.code, out)
		}
		if _, err := os.Lstat(filepath.Clean(c.file)); err == nil {
			t.Errorf("%s is there for everybody", c.file)
		}
	}
}
