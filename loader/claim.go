package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// RuntimeDir holds a file for each claim: who uses which queue.
const RuntimeDir = "/run/stag"

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
			// A process that has the lock and has not signed may only be removing
			// what a dead process left.
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

// The errors of takeFile that are no failures.
var (
	errHeld    = errors.New("another has the lock")
	errRemoved = errors.New("removed by its last owner meanwhile")
)

// takeFile opens the file at path and locks it. With errHeld it returns the open file,
// too, so that the caller can read who has the lock.
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

// programClaim is the file of the claim on a pinned program. The process that uses the
// program has it.
func programClaim(id ebpf.ProgramID) string {
	return filepath.Join(RuntimeDir, fmt.Sprintf("program-%d", id))
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
