package measure

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// conditions is where and on what a run was made. No path and no name of the
// machine is in it.
type conditions struct {
	Begun   string    `json:"begun"` // when the run began: RFC 3339, UTC, minutes
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
	Cores   int       `json:"cores"`
	Threads int       `json:"gomaxprocs"`
	Go      string    `json:"go"`
	Commit  string    `json:"commit"`
	Missing []string  `json:"not_installed,omitempty"` // tools that would have been run
	Load    [2]string `json:"load"`                    // the machine's load averages, before and after
}

func readConditions() (c conditions, err error) {
	c.Begun = time.Now().UTC().Format("2006-01-02T15:04Z")
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return c, err
	}
	c.Kernel = unix.ByteSliceToString(u.Release[:])
	c.Cores, c.Threads, c.Go = runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.Version()
	if c.CPU, err = cpuModel(); err != nil {
		return c, err
	}
	c.Commit = commit()
	c.Load[0], err = loadAverage()
	return c, err
}

func cpuModel() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value), nil
		}
	}
	return runtime.GOARCH, nil // not every architecture names its model
}

func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(text))
	if len(f) < 3 {
		return "", fmt.Errorf("/proc/loadavg: %q", text)
	}
	return strings.Join(f[:3], " "), nil
}

// commit is the checked-out commit, and whether files differ from it.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown: not run in a checkout"
	}
	name := string(bytes.TrimSpace(id))
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(changed) != 0 {
		name += " with changes"
	}
	return name
}

// begun says when the run began, as the end of a sentence. Reports that were
// saved without that say nothing.
func (c conditions) begun() string {
	if c.Begun == "" {
		return ""
	}
	return ", begun " + c.Begun
}
