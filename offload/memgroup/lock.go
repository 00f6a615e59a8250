package memgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// hold opens the file at path and locks it. It returns nil if another open file has the
// lock. The lock ends with the file, or with the process.
func hold(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		whole := unix.Flock_t{Type: unix.F_WRLCK}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
		if err == nil && named(f, path) {
			return f, nil
		}
		f.Close()
		if err == unix.EAGAIN || err == unix.EACCES {
			return nil, nil
		}
		if err != nil {
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		// Its last holder has removed the file: nobody else would find the lock.
	}
}

// named reports whether the file still has the name.
func named(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// held reports whether a process holds the lock of the file at path.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole) == nil && whole.Type != unix.F_UNLCK
}

const (
	lockWait  = 10 * time.Second
	lockRetry = 2 * time.Millisecond
)

// lock takes the lock of the registry. A process holds it for a few system calls, and
// longer only while it makes the group's table.
func (r *registry) lock() (unlock func(), err error) {
	path := filepath.Join(r.dir, "lock")
	for deadline := time.Now().Add(lockWait); ; time.Sleep(lockRetry) {
		err := r.makeDir()
		if err == nil {
			var f *os.File
			if f, err = hold(path); f != nil {
				return func() { f.Close() }, nil
			}
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the last member has just removed the directory
			return nil, fmt.Errorf("lock group %s: %w", r.name, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("lock group %s: another process has held %s for %v: end it", r.name, path, lockWait)
		}
	}
}
