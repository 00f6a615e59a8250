package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// ownVariable makes this test program one that has mounts of its own: it writes
// where it is told to, and fails if it is told to.
const ownVariable = "STAG_NEED_TEST"

func TestMain(m *testing.M) {
	if file := os.Getenv(ownVariable); file != "" {
		OwnMounts()
		os.Exit(own(file))
	}
	os.Exit(m.Run())
}

// The exit codes of own.
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

// TestOwnMounts: what a program with mounts of its own writes is seen by nobody
// else, and its exit code is that of the whole.
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
