package rig

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// NoLeaks fails the test if at its end the process has more goroutines or open files
// than now. Call NoLeaks first, because it then checks after all other cleanup
// functions.
func NoLeaks(t testing.TB) {
	t.Helper()
	noLeaks(t, Patience)
}

func noLeaks(t testing.TB, within time.Duration) {
	t.Helper()
	pollster(t)
	signals()
	runtime.GC() // finalizers close files of earlier tests
	goroutines, files := runtime.NumGoroutine(), Files(t)
	t.Cleanup(func() {
		t.Helper()
		var now []string
		defer func() {
			if len(now) > len(files) {
				t.Logf("open files are %q, were %q", now, files)
			}
		}()
		eventually(t, "files are closed", func() bool {
			now = Files(t)
			return len(now) <= len(files)
		}, within)
		eventually(t, "goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines }, within)
	})
}

// pollster makes the runtime open the descriptors of its poller. They stay open, and
// NoLeaks must not count them as leaks.
func pollster(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	Must(t, err)
	Check(t, r.Close())
	Check(t, w.Close())
}

// signals makes os/signal begin its goroutine. It never ends, go test -fuzz begins it in
// the middle of a test, and NoLeaks must not count it as a leak.
func signals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGWINCH)
	signal.Stop(c)
}

// Files returns the targets of this process's open descriptors, sorted.
func Files(t testing.TB) (all []string) {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	Must(t, err)
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && !strings.HasPrefix(to, "/proc/") { // skips the descriptor of the directory itself
			all = append(all, to)
		}
	}
	slices.Sort(all)
	return all
}
