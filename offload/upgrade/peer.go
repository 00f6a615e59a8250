package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/control"
)

// ErrStranger is returned if the process at the other end belongs to another user.
var ErrStranger = errors.New("connections are handed over to and from root and the own user only")

// peer returns the credentials of the process at the other end. It fails with ErrStranger if
// that is a process of neither root nor this process's user.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	cred, err := control.PeerOf(c)
	if err != nil {
		return nil, fmt.Errorf("ask who is at the other end: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%w: pid %d of user %d", ErrStranger, cred.Pid, cred.Uid)
	}
	return cred, nil
}

// Listen makes the socket at which the old process waits for its successor. The socket has
// mode 0600 from the beginning, and a file that is there already is an error.
func Listen(ctx context.Context, path string) (*net.UnixListener, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	l, err := c.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	return l.(*net.UnixListener), nil
}

// Accept waits for a successor of this user or of root. It refuses others, and waits on.
func Accept(ctx context.Context, l *net.UnixListener, refused func(error)) (*net.UnixConn, error) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, fmt.Errorf("upgrade: wait for the new process: %w", err)
		}
		if _, err = peer(c); err == nil {
			return c, nil
		}
		c.Close()
		if refused != nil {
			refused(err)
		}
	}
}

// Connect connects to the old process.
func Connect(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("upgrade: connect to the old process: %w", err)
	}
	return c.(*net.UnixConn), nil
}
