package need

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountsVariable is set in the copy of a test program that has its own mounts.
const mountsVariable = "STAG_OWN_MOUNTS"

// OwnMounts gives a test program that runs as root its own BPF file system and its own
// /run. No other process sees these mounts, and they vanish with the program. TestMain
// must call OwnMounts first. OwnMounts runs the program again in a new mount namespace
// and exits with the exit code of this copy. Within the copy OwnMounts returns, and
// TestMain continues. The copy is killed when its parent dies.
//
// For a user without rights OwnMounts returns at once and makes no copy: tests that
// need mounts need root, and skip.
func OwnMounts() {
	switch {
	case os.Geteuid() != 0:
	case os.Getenv(mountsVariable) == "":
		os.Exit(again())
	default:
		if err := hide(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// hide mounts empty file systems over the directories that tests write to.
func hide() error {
	os.Unsetenv(mountsVariable) // programs that this process starts need their own mounts
	for _, m := range []struct{ kind, at, options string }{
		{"bpf", "/sys/fs/bpf", ""},
		{"tmpfs", "/run", "mode=755"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	return nil
}

// again runs this program in a new mount namespace and returns its exit code.
func again() int {
	runtime.LockOSThread() // the copy dies when the thread that started it ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mountsVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if err == nil {
		return 0
	}
	failed := new(exec.ExitError)
	if !errors.As(err, &failed) {
		fmt.Fprintf(os.Stderr, "run the tests in a mount namespace: %v\n", err)
		return 1
	}
	return max(1, failed.ExitCode()) // -1 means that a signal ended the copy
}
