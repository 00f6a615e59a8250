package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// RuntimeDir is the directory with one file for each claim. The file names the process
// that holds the claim.
const RuntimeDir = "/run/stag"

// Claim is this process's exclusive right to a queue of an interface. A claim ends with
// Close, or when the process ends.
type Claim struct {
	file   *os.File
	left   atomic.Bool // another process has the claim
	ending sync.Once
	ended  error
}

// NewClaim claims a queue of link's port. If another process has the claim, the error
// is ErrQueueBusy and names that process.
//
// The claim is a lock on a file. The kernel drops the lock when the process dies. The
// text in the file only tells other processes which process has the lock.
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

// oneProcess is the end of each error message about a claim that another process holds.
const oneProcess = "an interface belongs to one process at a time: end that one first, or use another interface; programs share one by stag daemon and stag run"

// claim claims what on link's port. If another process has the claim, the Claim is nil
// and owner is that process.
func claim(link Link, what string) (*Claim, Owner, error) {
	return claimFile(claimPath(link, what), link.Port)
}

// claimFile claims the file at path. name is the claimed interface or object, for
// messages.
func claimFile(path, name string) (*Claim, Owner, error) {
	if err := os.MkdirAll(RuntimeDir, 0o755); err != nil {
		return nil, Owner{}, unrecorded(name, err)
	}
	for unsigned := 0; ; {
		file, err := takeFile(path)
		if err == errHeld {
			// The file names no process yet. Its lock may belong to a new owner, or to
			// a process that only removes the file of a dead owner. Try again, because
			// the second case ends soon.
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

// takeFile returns these errors when the file is in use or has just been removed.
var (
	errHeld    = errors.New("another has the lock")
	errRemoved = errors.New("removed by its last owner meanwhile")
)

// takeFile opens the file at path and locks it. With errHeld it also returns the open
// file, so that the caller can read which process has the lock.
func takeFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	switch err = lock(file); {
	case err == unix.EAGAIN || err == unix.EACCES:
		return file, errHeld
	case err == nil && !stillThere(file, path):
		err = errRemoved // the locked file has no name any more, so other processes cannot find it
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// dropClaim removes the file of a claim if no process holds the claim.
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

// unrecorded returns the error for a claim on name whose file cannot be written.
func unrecorded(name string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fail(ErrPermission, err, "record the use of %s: %v: run as root, or have root make %s yours", name, err, RuntimeDir)
	}
	return fmt.Errorf("record the use of %s: %w", name, err)
}

func claimPath(link Link, what string) string {
	return filepath.Join(RuntimeDir, fmt.Sprintf("%d-%d-%s", link.Netns, link.PortIndex, what))
}

// programClaim returns the path of the file for the claim on a pinned program. The
// process that uses the program holds this claim.
func programClaim(id ebpf.ProgramID) string {
	return filepath.Join(RuntimeDir, fmt.Sprintf("program-%d", id))
}

// lock locks the file without waiting. The lock belongs to the open file, not to the
// process, so two claims within one process also exclude each other.
func lock(f *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
}

// locked reports whether another open file has the lock. It does not take the lock.
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

// Close ends the claim. Further calls return the result of the first.
func (c *Claim) Close() error {
	c.ending.Do(func() {
		if c.left.Load() {
			c.ended = c.file.Close() // the lock belongs to the open file, which another process has too
			return
		}
		// Remove the file while this process still holds the lock.
		err := os.Remove(c.file.Name())
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		c.ended = errors.Join(err, c.file.Close())
	})
	return c.ended
}
