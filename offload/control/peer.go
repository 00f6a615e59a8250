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

// ErrImpostor is what comes of asking a socket that another process, or another
// user, answers at than the one that was found there.
var ErrImpostor = errors.New("another process answers for the engine")

// peerOf is who is at the other end of c, by the kernel's word: who has
// connected or, seen from there, who has begun to listen.
func peerOf(c net.Conn) (cred *unix.Ucred, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(failed, err)
}

// check makes sure that the process that answers is the one that e names:
// anybody could have made the file in a directory of theirs, and tell tales of
// others' engines. The kernel gives 0 for the pid of a process that this one
// cannot see.
func (e Endpoint) check(c net.Conn) error {
	cred, err := peerOf(c)
	if err != nil {
		return err
	}
	samePID := int(cred.Pid) == e.PID || cred.Pid == 0 && trusted(e.UID)
	if int(cred.Uid) != e.UID || !samePID {
		return fmt.Errorf("%w: pid %d of user %d, at %s: end it, or remove the file", ErrImpostor, cred.Pid, cred.Uid, e.Path)
	}
	return nil
}

// trusted reports whether what a user's processes say is believed as far as the
// kernel does not know it.
func trusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// connect connects to the socket, and to nothing that another user has put in
// its place: what was opened without following a link is what it connects to.
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

// openDir opens a directory. Only this user's own may be a link: another's
// could become one to a better place.
func openDir(dir string, flags int) (fd int, err error) {
	flags |= unix.O_DIRECTORY | unix.O_CLOEXEC
	if dir != Dir() {
		flags |= unix.O_NOFOLLOW
	}
	return unix.Open(dir, flags, 0)
}
