package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrImpostor is returned if the process or the user that answers at a socket is not
// the one that was found there.
var ErrImpostor = errors.New("another process answers for the engine")

// PeerOf returns the kernel's credentials of the process at the other end of c. For a
// server that is the process that connected. For a client it is the process that began
// to listen.
func PeerOf(c net.Conn) (cred *unix.Ucred, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(failed, err)
}

// check returns an error unless the process that answers is the one in e. Any user
// could make a socket in a directory of their own, and report false data about another
// user's engine. The kernel gives pid 0 for a process that this process cannot see.
func (e Endpoint) check(c net.Conn) error {
	cred, err := PeerOf(c)
	if err != nil {
		return err
	}
	samePID := int(cred.Pid) == e.PID || cred.Pid == 0 && Trusted(e.UID)
	if int(cred.Uid) != e.UID || !samePID {
		return fmt.Errorf("%w: pid %d of user %d, at %s: end it, or remove the file", ErrImpostor, cred.Pid, cred.Uid, e.Path)
	}
	return nil
}

// Trusted reports whether this process believes data of a user's processes that the
// kernel cannot confirm.
func Trusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// connect connects to the socket, but not to a file that another user has put in its
// place. connect opens the socket without following a link, and then connects to the
// opened file.
func (e Endpoint) connect(ctx context.Context) (net.Conn, error) {
	dir, err := openDir(filepath.Dir(e.Path), unix.O_PATH)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(e.Path), Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(e.Path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: e.Path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.Join(err, &os.PathError{Op: "connect", Path: e.Path, Err: unix.ENOTSOCK})
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	var failed *net.OpError
	if errors.As(err, &failed) {
		failed.Addr = &net.UnixAddr{Net: "unix", Name: e.Path}
	}
	return c, err
}

// openDir opens a directory. Only a directory of this user may be a link, because
// another user could replace a directory by a link to a more important one.
func openDir(dir string, flags int) (fd int, err error) {
	flags |= unix.O_DIRECTORY | unix.O_CLOEXEC
	if dir != Dir() {
		flags |= unix.O_NOFOLLOW
	}
	return unix.Open(dir, flags, 0)
}
