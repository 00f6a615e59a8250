package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/attach"
)

// recordDir has a file for each attached disk. Its process holds a lock on the file, so that
// others see whether it lives.
const recordDir = "/run/stag/attach"

// record is the content of such a file.
type record struct {
	PID    int    `json:"pid"`
	Device string `json:"device"` // "": not there yet
	URL    string `json:"url"`

	file *os.File
	path string
}

// newRecord writes a record of this process. It fails if the disk is attached already.
func newRecord(url string) (*record, error) {
	if err := os.MkdirAll(recordDir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	list, err := records()
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.URL == url {
			return nil, fmt.Errorf("%s is attached already, as %s", url, r.Device)
		}
	}
	r := &record{PID: os.Getpid(), URL: url, path: filepath.Join(recordDir, strconv.Itoa(os.Getpid()))}
	if r.file, err = os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	err = unix.Flock(int(r.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = r.write()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", r.path, err), r.file.Close())
	}
	return r, nil
}

// lockDir makes one process at a time look whether a disk is attached.
func lockDir() (*os.File, error) {
	f, err := os.Open(recordDir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(os.NewSyscallError("flock "+recordDir, err), f.Close())
	}
	return f, nil
}

func (r *record) write() error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = r.file.WriteAt(append(b, '\n'), 0)
	}
	return err
}

// name adds the name of the device.
func (r *record) name(device string) error {
	r.Device = device
	return r.write()
}

// end removes the record, and then lets the lock go.
func (r *record) end() error { return errors.Join(os.Remove(r.path), r.file.Close()) }

// records returns the records of processes that live.
func records() (list []*record, err error) {
	err = eachRecord(func(r *record, lives bool) error {
		if lives {
			list = append(list, r)
		}
		return nil
	})
	return list, err
}

// eachRecord calls f with each record, and whether its process lives.
func eachRecord(f func(r *record, lives bool) error) error {
	entries, err := os.ReadDir(recordDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		r := &record{path: filepath.Join(recordDir, e.Name())}
		b, err := os.ReadFile(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return err
		}
		over, err := r.over()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(b, r); err != nil && !over {
			continue // it has just begun
		}
		if err := f(r, !over); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether the process of a record has ended.
func (r *record) over() (bool, error) {
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// signal asks the process of a record to end.
func (r *record) signal() error {
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	if over, err := r.over(); over || err != nil { // another process may have the number now
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// mendRecords removes the records of processes that were killed, and what their devices have
// left in the kernel.
func mendRecords() error {
	return eachRecord(func(r *record, lives bool) error {
		if lives {
			return nil
		}
		if strings.HasPrefix(r.Device, "/dev/") {
			if err := attach.Mend(r.Device, r.PID); err != nil {
				return err
			}
		}
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
