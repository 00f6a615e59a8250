package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// RuntimeDir holds a file for each claim: who uses which queue.
const RuntimeDir = "/run/stag"

// Owner is the process that holds a claim.
type Owner struct {
	PID   int
	Start uint64 // when it started, in clock ticks after boot (proc(5), stat)
}

// Claim is this process's hold on a queue of an interface. It ends with Close,
// and with the process however that ends.
type Claim struct {
	file   *os.File
	ending sync.Once
	ended  error
}

// NewClaim takes queue of link's port. At most one process can have it: for any
// other the error is ErrQueueBusy and names the owner.
//
// The claim is a lock on a file, which the kernel drops when the process dies;
// what the file says is only for others to read.
func NewClaim(link Link, queue int) (*Claim, error) {
	c, owner, err := claim(link, strconv.Itoa(queue))
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fail(ErrQueueBusy, nil, "%s queue %d is in use by %s: %s", link.Port, queue, owner, oneProcess)
	}
	return c, nil
}

// oneProcess is the rule that a claim keeps, and what to do about it.
const oneProcess = "an interface belongs to one process at a time: end that one first, or use another interface"

// String names the process for a message: "pid 12 (stag)", or "another process" for
// an owner whose signature cannot be read.
func (o Owner) String() string { return process(o.PID) }

// claim takes what on link's port. When another has it, claim is nil and owner
// says who.
func claim(link Link, what string) (*Claim, Owner, error) {
	return claimFile(claimPath(link, what), link.Port)
}

// claimFile takes the file at path, which stands for the thing called name.
func claimFile(path, name string) (*Claim, Owner, error) {
	if err := os.MkdirAll(RuntimeDir, 0o755); err != nil {
		return nil, Owner{}, unrecorded(name, err)
	}
	for unsigned := 0; ; {
		file, err := takeFile(path)
		if err == errHeld {
			// Whoever holds it and does not say so may only be removing what a
			// dead process has left.
			owner := readOwner(file)
			file.Close()
			if unsigned++; owner == (Owner{}) && unsigned < 3 {
				continue
			}
			return nil, owner, nil
		}
		if err == errRemoved {
			continue
		}
		if err != nil {
			return nil, Owner{}, unrecorded(name, err)
		}
		if err := sign(file); err != nil {
			file.Close()
			return nil, Owner{}, fmt.Errorf("record the use of %s in %s: %w", name, path, err)
		}
		return &Claim{file: file}, Owner{}, nil
	}
}

// What may come of taking a file.
var (
	errHeld    = errors.New("another has the lock")
	errRemoved = errors.New("removed by its last owner meanwhile")
)

// takeFile opens the file at path and locks it. With errHeld the file is open all
// the same, to read whose it is.
func takeFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	switch err = lock(file); {
	case err == unix.EAGAIN || err == unix.EACCES:
		return file, errHeld
	case err == nil && !stillThere(file, path):
		err = errRemoved // the lock is on nothing that others will find
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// dropClaim removes the file of a claim that nobody holds.
func dropClaim(path string) (removed bool, err error) {
	file, err := takeFile(path)
	switch err {
	case nil:
		err = os.Remove(path)
		return err == nil, errors.Join(err, file.Close())
	case errHeld:
		return false, file.Close()
	case errRemoved:
		return false, nil
	}
	return false, unrecorded(path, err)
}

// unrecorded is why the use of the thing called name cannot be recorded.
func unrecorded(name string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fail(ErrPermission, err, "record the use of %s: %v: run as root, or have root make %s yours", name, err, RuntimeDir)
	}
	return fmt.Errorf("record the use of %s: %w", name, err)
}

func claimPath(link Link, what string) string {
	return filepath.Join(RuntimeDir, fmt.Sprintf("%d-%d-%s", link.Netns, link.PortIndex, what))
}

// lock takes the file without waiting. The lock belongs to the open file, not
// to the process, so two claims within one process exclude each other as well.
func lock(f *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
}

// locked reports whether another open file has the lock, without taking it.
func locked(f *os.File) bool {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole)
	return err == nil && whole.Type != unix.F_UNLCK
}

func stillThere(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// sign writes who this process is into the file.
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

// readOwner reads who holds the file. The owner signs right after it got the
// lock, so an old signature or none is given a moment. The zero Owner means
// that it cannot be told.
func readOwner(f *os.File) Owner {
	for range 20 {
		var buf [64]byte
		n, _ := f.ReadAt(buf[:], 0)
		var o Owner
		if _, err := fmt.Sscanf(string(buf[:n]), "%d %d\n", &o.PID, &o.Start); err == nil {
			// A signature whose process is gone is the last owner's.
			if start, err := startTime(o.PID); err == nil && start == o.Start {
				return o
			}
		}
		time.Sleep(time.Millisecond)
	}
	return Owner{}
}

// startTime is when process pid started, in clock ticks after boot. Together
// with the pid it names a process for good, as pids are used again.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses, which may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const start = 22 - 3 // the 22nd field; fields begins with the third
	if len(fields) <= start {
		return 0, errors.New("the kernel's process table cannot be read")
	}
	return strconv.ParseUint(fields[start], 10, 64)
}

// Close ends the claim. Further calls return the first one's result.
func (c *Claim) Close() error {
	c.ending.Do(func() {
		// Removed first, while nobody else can have the lock.
		err := os.Remove(c.file.Name())
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		c.ended = errors.Join(err, c.file.Close())
	})
	return c.ended
}
