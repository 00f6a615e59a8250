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

// conditions describes the machine and the software of a run. It contains no path and
// no host name.
type conditions struct {
	Begun   string    `json:"begun"` // start of the run: RFC 3339, UTC, to the minute
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
	Cores   int       `json:"cores"`
	Threads int       `json:"gomaxprocs"`
	Go      string    `json:"go"`
	Commit  string    `json:"commit"`
	Missing []string  `json:"not_installed,omitempty"`      // tools that were not run because they are not installed
	Control string    `json:"congestion_control,omitempty"` // of the kernel's TCP
	Pairs   string    `json:"congestion_control_of_pairs,omitempty"`
	Peers   []string  `json:"peers,omitempty"` // versions of the iSCSI programs that were compared
	Guest   string    `json:"guest,omitempty"` // kernel of the guest in which all rows ran; "": no guest
	Load    [2]string `json:"load"`            // the machine's load averages before and after the run
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
	machine, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return c, err
	}
	c.Control, c.Pairs = strings.TrimSpace(string(machine)), control
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
	return runtime.GOARCH, nil // /proc/cpuinfo has no model name on some architectures
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

// commit returns the checked-out commit, and says whether files differ from it.
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

// begun returns the start of the run as the end of a sentence. It returns "" for an old
// report without a start.
func (c conditions) begun() string {
	if c.Begun == "" {
		return ""
	}
	return ", begun " + c.Begun
}
