package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Serves reports whether a daemon accepts clients at a socket.
func Serves(path string) bool {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Listen makes the socket of a daemon at a path. A socket that nobody serves is replaced.
// Users of the group gid may connect, or only this user if gid is negative. Close of the
// listener removes the socket.
func Listen(path string, gid int) (*net.UnixListener, error) {
	if Serves(path) {
		return nil, fmt.Errorf("a daemon serves %s already: %w", path, os.ErrExist)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		os.Remove(path)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := open(fd, path, gid); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return FromFile(file, true)
}

// open binds the socket. Nobody can connect before its mode is right.
func open(fd int, path string, gid int) error {
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	mode, err := os.FileMode(0o600), error(nil)
	if gid >= 0 {
		mode, err = 0o660, os.Chown(path, -1, gid)
	}
	if err := errors.Join(err, os.Chmod(path, mode)); err != nil {
		os.Remove(path)
		return err
	}
	return os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
}

// FromFile makes a listener of a socket that somebody else has made, such as systemd. With
// remove, Close of the listener removes the socket's path. The caller must close the file.
func FromFile(file *os.File, remove bool) (*net.UnixListener, error) {
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok || l.Addr().Network() != "unixpacket" {
		l.Close()
		return nil, fmt.Errorf("%s is no socket of type SOCK_SEQPACKET", file.Name())
	}
	u.SetUnlinkOnClose(remove)
	return u, nil
}
