//go:build interop

package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountsVariable is set in the copy of the test program that has mounts of its
// own.
const mountsVariable = "STAG_INTEROP_MOUNTS"

// TestMain runs the tests in a copy whose BPF file system and /run, with all
// temporary files, nobody else sees. Whatever ends the copy, Ctrl-C included,
// ends everything: these mounts, both network namespaces, which have no names, and
// the guest and all commands, which die with their parent.
func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case os.Geteuid() != 0:
		fmt.Fprintln(os.Stderr, "interop: namespaces and XDP take root: run it as root")
		os.Exit(1)
	case os.Getenv(mountsVariable) == "":
		os.Exit(again())
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	err := hide("/sys/fs/bpf", "bpf")
	if err == nil {
		err = hide("/run", "tmpfs")
	}
	if err == nil {
		err = theStage.setUp()
	}
	if err == nil {
		code = m.Run()
	}
	theStage.tearDown()
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	return code
}

func hide(place, fs string) error {
	if err := unix.Mount(fs, place, fs, 0, ""); err != nil {
		return fmt.Errorf("mount a %s file system on %s: %w", fs, place, err)
	}
	return nil
}

// again runs this program in a mount namespace of its own.
func again() int {
	runtime.LockOSThread() // the copy dies with this thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mountsVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	return 0
}
