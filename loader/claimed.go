package loader

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// ClaimHook claims the XDP hook of link's port. A process holds this claim while it
// loads a program, and for as long as it has a private program. If another process has
// the claim, c is nil and owner is that process.
func ClaimHook(link Link) (c *Claim, owner Owner, err error) { return claim(link, hookClaim) }

// HookOwner returns the process that has claimed the hook of link's port. If found is
// true and owner is the zero Owner, the process cannot be identified.
func HookOwner(link Link) (owner Owner, found bool) { return claimant(claimPath(link, hookClaim)) }

// QueueOwner returns the process that has claimed a receive queue of link's port.
func QueueOwner(link Link, queue int) (owner Owner, found bool) {
	return claimant(claimPath(link, strconv.Itoa(queue)))
}

// PortOwner returns a process that has claimed any receive queue of link's port.
func PortOwner(link Link) (owner Owner, found bool) {
	_, owner, found = owners(link)
	return owner, found
}

// owners finds a claimed queue of link's port, and the process that has the claim.
func owners(link Link) (queue string, owner Owner, found bool) {
	paths, err := filepath.Glob(claimPath(link, "[0-9]*"))
	if err != nil {
		return "", Owner{}, false
	}
	for _, path := range paths {
		if owner, found := claimant(path); found {
			return path[strings.LastIndexByte(path, '-')+1:], owner, true
		}
	}
	return "", Owner{}, false
}

// claimant returns the process that holds the claim at path. If found is true and owner
// is the zero Owner, the process cannot be identified.
func claimant(path string) (owner Owner, found bool) {
	file, err := os.Open(path)
	if err != nil {
		return Owner{}, false // no process has the claim, or the process has just ended
	}
	defer file.Close()
	if !locked(file) {
		return Owner{}, false
	}
	return readOwner(file), true
}

// claimFiles matches the file names of claims on queues and hooks.
var claimFiles = regexp.MustCompile(`^\d+-\d+-(\d+|` + hookClaim + `)$`)

// Claims counts the claims on queues and hooks that running processes hold. It also
// lists the files of claims whose process has ended. Such a file blocks no new claim:
// the kernel dropped its lock when the process ended. The error means that RuntimeDir
// cannot be read.
func Claims() (held int, stale []string, err error) {
	entries, err := os.ReadDir(RuntimeDir)
	for _, e := range entries {
		if !claimFiles.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(RuntimeDir, e.Name())
		if _, found := claimant(path); found {
			held++
		} else if _, err := os.Stat(path); err == nil {
			stale = append(stale, path)
		}
	}
	return held, stale, err
}

// Claimed reports whether process pid runs as user uid and has claimed the hook or a
// queue of an interface. netns is the cookie of the interface's network namespace, and
// index is the interface's index. A claim file alone is not enough, because a process
// that has ended may have had the same pid.
func Claimed(netns uint64, index, pid, uid int) bool {
	if user, err := userOf(pid); err != nil || user != uid {
		return false
	}
	paths, _ := filepath.Glob(claimPath(Link{Netns: netns, PortIndex: index}, "*")) // Glob fails only on a malformed pattern
	for _, path := range paths {
		if owner, found := claimant(path); found && owner.PID == pid {
			return true
		}
	}
	return false
}
