package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountsVariable is set in the copy of the test program that has mounts of its
// own.
const mountsVariable = "STAG_E2E_MOUNTS"

// TestMain lets the test binary be the process that TestKilled kills. As root
// the tests run in a copy with a BPF file system that nobody else sees, and
// that vanishes with it.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(victimLink) != "":
		if err := victim(os.Getenv(victimLink), os.Getenv(victimPeer)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	case os.Geteuid() == 0 && os.Getenv(mountsVariable) == "":
		os.Exit(again())
	case os.Geteuid() == 0:
		if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""); err != nil {
			fmt.Fprintf(os.Stderr, "mount a BPF file system: %v\n", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// again runs this program in a mount namespace of its own.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mountsVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "run the tests in a mount namespace: %v\n", err)
		return 1
	}
	if err := cmd.Wait(); err != nil {
		return 1
	}
	return 0
}
