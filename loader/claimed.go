package loader

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// ClaimHook takes the XDP hook of link's port. A process has this claim while it
// loads a program, and for as long as it has a private one. When another process
// has the claim, c is nil and owner says who.
func ClaimHook(link Link) (c *Claim, owner Owner, err error) { return claim(link, hookClaim) }

// HookOwner returns the process that has claimed the hook of link's port. The zero
// Owner is one that cannot be told.
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

// owners finds a queue of link's port that is claimed, and the process that has it.
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

// claimant returns the process that holds the claim at path. The zero Owner is one
// that cannot be told.
func claimant(path string) (owner Owner, found bool) {
	file, err := os.Open(path)
	if err != nil {
		return Owner{}, false // nobody, or ended meanwhile
	}
	defer file.Close()
	if !locked(file) {
		return Owner{}, false
	}
	return readOwner(file), true
}

// claimFiles matches the names of claims on queues and hooks.
var claimFiles = regexp.MustCompile(`^\d+-\d+-(\d+|` + hookClaim + `)$`)

// Claims counts the claims on queues and hooks that a process holds, and lists the
// files of claims whose process has ended. A file that is left over keeps nobody
// out: the kernel dropped its lock with the process. The error says that RuntimeDir
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

// Claimed reports whether a process has claimed a queue of the interface of that
// index in the network namespace of that cookie, or its hook, and runs as the
// user. The pid alone is not enough: a process that has ended since may have had it.
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
