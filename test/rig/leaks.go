package rig

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
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
