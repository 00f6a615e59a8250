package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Owner identifies the process that holds a claim.
type Owner struct {
	PID   int
	Start uint64 // start time in clock ticks after boot (proc(5), stat)
}

// String names the process for a message: "pid 12 (stag daemon)". It returns "another
// process" for the zero Owner.
func (o Owner) String() string {
	if o.PID == 0 {
		return "another process"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", o.PID))
	if err != nil {
		return fmt.Sprintf("pid %d", o.PID)
	}
	return fmt.Sprintf("pid %d (%s)", o.PID, strings.TrimSpace(string(name))+o.subcommand())
}

// subcommand returns what a stag process does, such as " daemon", and "" for any other
// program.
func (o Owner) subcommand() string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", o.PID))
	words := strings.Split(string(line), "\x00")
	if err != nil || len(words) < 2 || filepath.Base(words[0]) != "stag" || strings.HasPrefix(words[1], "-") {
		return ""
	}
	return " " + words[1]
}

// sign writes this process's pid and start time into the file of a claim.
func sign(f *os.File) error {
	start, err := startTime(os.Getpid())
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%d %d\n", os.Getpid(), start), 0)
	return err
}

// readOwner reads which process holds the file's lock. The owner signs just after it
// takes the lock, so readOwner waits up to 20 ms for a valid signature. It returns the
// zero Owner if no valid signature appears.
func readOwner(f *os.File) Owner {
	for range 20 {
		var buf [64]byte
		n, _ := f.ReadAt(buf[:], 0)
		var o Owner
		if _, err := fmt.Sscanf(string(buf[:n]), "%d %d\n", &o.PID, &o.Start); err == nil {
			// If the process that signed has ended, a previous owner wrote the signature.
			if start, err := startTime(o.PID); err == nil && start == o.Start {
				return o
			}
		}
		time.Sleep(time.Millisecond)
	}
	return Owner{}
}

// startTime returns when process pid started, in clock ticks after boot. Pids are
// reused, but a pid and a start time together identify a process.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses, which may contain any characters.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const start = 22 - 3 // start time is field 22; fields begins with field 3
	if len(fields) <= start {
		return 0, errors.New("the kernel's process table cannot be read")
	}
	return strconv.ParseUint(fields[start], 10, 64)
}

// userOf returns the effective user id of a process.
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
