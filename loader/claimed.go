package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Claimed reports whether a process has claimed a queue of the interface of that
// index in the network namespace of that cookie, or its hook, and runs as the
// user: a pid alone could be that of a process that has ended since.
func Claimed(netns uint64, index, pid, uid int) bool {
	if user, err := userOf(pid); err != nil || user != uid {
		return false
	}
	paths, _ := filepath.Glob(claimPath(Link{Netns: netns, PortIndex: index}, "*")) // the pattern is good
	for _, path := range paths {
		if owner, found := claimant(path); found && owner.PID == pid {
			return true
		}
	}
	return false
}

// userOf is the effective user of a process.
func userOf(pid int) (uid int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			var first int
			_, err = fmt.Sscan(ids, &first, &uid)
			return uid, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status tells no user", pid)
}
