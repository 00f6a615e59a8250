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

// mountsVariable is set in the copy of a test program that has mounts of its
// own.
const mountsVariable = "STAG_OWN_MOUNTS"

// OwnMounts gives a test program that runs as root a BPF file system and a /run
// that no other process sees and that vanish with it. TestMain calls it before
// anything else. OwnMounts runs the program again in a mount namespace of its own
// and exits with what that copy exits with; it returns in the copy. For a user
// without rights it returns at once: tests that need mounts need root, and say
// so. The copy is killed when its parent dies.
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

// hide covers what tests write to.
func hide() error {
	os.Unsetenv(mountsVariable) // what this process starts is no copy
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

// again runs this program in a mount namespace of its own and returns its exit
// code.
func again() int {
	runtime.LockOSThread() // the copy dies with the thread that started it
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
	return max(1, failed.ExitCode()) // -1: a signal ended the copy
}
