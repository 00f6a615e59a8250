package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
)

var nativeOrder = binary.NativeEndian

// answer is an answer of the daemon and the descriptors that came with it.
type answer struct {
	proto.Message
	fds []int
}

// ask sends a request and returns the answer, which must come with n descriptors.
func (t *through) ask(m *proto.Message, n int, fds ...int) (*answer, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	if t.gone.Load() {
		return nil, ErrDaemonGone
	}
	return exchange(t.control, m, n, fds...)
}

// tell sends a request whose answer has no descriptors.
func (t *through) tell(op proto.Op, handle uint64, fill func(m *proto.Message)) error {
	m := &proto.Message{Op: op, Handle: handle}
	if fill != nil {
		fill(m)
	}
	_, err := t.ask(m, 0)
	return err
}

// destroy ends an object in the daemon. If the daemon has gone, so has the object.
func (t *through) destroy(kind proto.Kind, handle uint64) error {
	err := t.tell(proto.OpDestroy, handle, func(m *proto.Message) { m.Destroy().Kind = kind })
	if errors.Is(err, ErrDaemonGone) {
		return nil
	}
	return err
}

func exchange(c *net.UnixConn, m *proto.Message, n int, fds ...int) (*answer, error) {
	var rights []byte
	if len(fds) != 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(m.Bytes(), rights, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDaemonGone, err)
	}
	a := new(answer)
	if err := a.read(c); err != nil {
		return nil, err
	}
	switch {
	case a.Op != m.Op:
		a.drop()
		return nil, fmt.Errorf("the answer to request %d is one to %d", m.Op, a.Op)
	case a.Err != 0:
		a.drop()
		return nil, refusal(unix.Errno(a.Err))
	case len(a.fds) != n:
		a.drop()
		return nil, fmt.Errorf("%d descriptors came with the answer to request %d: want %d", len(a.fds), m.Op, n)
	}
	return a, nil
}

// read reads one message.
func (a *answer) read(c *net.UnixConn) error {
	const mostFDs = 8
	rights := make([]byte, unix.CmsgSpace(4*mostFDs))
	n, control, flags, _, err := c.ReadMsgUnix(a.Bytes(), rights)
	if messages, bad := unix.ParseSocketControlMessage(rights[:max(control, 0)]); bad == nil {
		for _, m := range messages {
			if fds, bad := unix.ParseUnixRights(&m); bad == nil {
				a.fds = append(a.fds, fds...)
			}
		}
	}
	switch {
	case errors.Is(err, io.EOF), err == nil && n == 0, errors.Is(err, unix.ECONNRESET), errors.Is(err, net.ErrClosed):
		err = ErrDaemonGone
	case err == nil && (n != proto.MessageLen || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || a.PrivateLen > proto.PrivateMax):
		err = fmt.Errorf("a message of %d octets from the daemon: want %d", n, proto.MessageLen)
	}
	if err != nil {
		a.drop()
	}
	return err
}

// drop closes the descriptors.
func (a *answer) drop() {
	for _, fd := range a.fds {
		unix.Close(fd)
	}
	a.fds = nil
}

// daemonErrors has the errors of this package for those of the daemon.
var daemonErrors = map[unix.Errno]error{
	unix.EBUSY: ErrInUse, unix.EDQUOT: ErrQuota, unix.EACCES: ErrNoAccess, unix.EISCONN: ErrConnected,
	unix.ENOTCONN: ErrNotConnected, unix.ENODEV: ErrNoPort, unix.EPROTONOSUPPORT: errVersions,
}

var errVersions = errors.New("the daemon is of another version of stag")

func refusal(errno unix.Errno) error {
	err := fmt.Errorf("the daemon says: %w", errno)
	if kind := daemonErrors[errno]; kind != nil {
		return fmt.Errorf("%w (%w)", kind, err)
	}
	return err
}

// mapShared maps memory that the daemon has made, and closes its descriptor.
func mapShared(fd int, n uint64) ([]byte, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if n == 0 || uint64(st.Size) < n {
		return nil, fmt.Errorf("%d octets of shared memory in a file of %d", n, st.Size)
	}
	memory, err := unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return memory, os.NewSyscallError("mmap", err)
}
