// Package need checks for what a test requires: root, network namespaces, AF_XDP, a
// program. If the requirement is missing, the test skips with one line that says why.
// But if the variable STAG_NEED names the requirement or is "all", the test fails. So
// no test is skipped unnoticed on a machine that must run all tests.
//
// STAG_NEED is a comma-separated list of "root", "netns", "afxdp", names of programs, names
// of C headers and files, and names of congestion controls.
package need

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that turns skips into failures.
const Variable = "STAG_NEED"

// Root requires an effective user id of 0.
func Root(t testing.TB) {
	t.Helper()
	verdict(t, "root", root())
}

// Netns requires the right to make a network namespace.
func Netns(t testing.TB) {
	t.Helper()
	verdict(t, "netns", netns())
}

// XDP requires AF_XDP sockets and the right to load an XDP program.
func XDP(t testing.TB) {
	t.Helper()
	verdict(t, "afxdp", xdp())
}

// Tool requires every named program in the search path.
func Tool(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := exec.LookPath(name)
		verdict(t, name, err)
	}
}

// Header requires a C compiler that finds every named header.
func Header(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		cc := exec.Command("cc", "-E", "-x", "c", "-")
		cc.Stdin = strings.NewReader("#include <" + name + ">\n")
		verdict(t, name, cc.Run())
	}
}

// File requires every named file.
func File(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		_, err := os.Stat(path)
		verdict(t, path, err)
	}
}

// Congestion requires a congestion control of the kernel. err is the result of setting
// it on a socket. Congestion returns err unless err says that the kernel lacks the
// congestion control.
func Congestion(t testing.TB, name string, err error) error {
	t.Helper()
	if errors.Is(err, unix.ENOENT) {
		verdict(t, name, err)
	}
	return err
}

// Loop requires a loop device. err is the result of making one.
func Loop(t testing.TB, err error) {
	t.Helper()
	verdict(t, "loop", err)
}

// verdict skips or fails t if err is not nil. name is the missing requirement.
func verdict(t testing.TB, name string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case demanded(os.Getenv(Variable), name):
		t.Fatalf("%s demands %s, which is missing: %v", Variable, name, err)
	default:
		t.Skipf("SKIPPED, needs %s: %v (%s=%s makes this a failure)", name, err, Variable, name)
	}
}

// demanded reports whether the comma-separated list contains name or "all".
func demanded(list, name string) bool {
	items := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	return slices.Contains(items, "all") || slices.Contains(items, name)
}

func root() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("running as user %d: run as root", uid)
	}
	return nil
}

// netns moves a thread into a new namespace and back.
var netns = sync.OnceValue(func() error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("make a network namespace: %w", err)
	}
	if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
		// The thread stays locked to its goroutine, because no other goroutine may run
		// in the thread's namespace.
		return fmt.Errorf("return to the first network namespace: %w", err)
	}
	runtime.UnlockOSThread()
	return nil
})
