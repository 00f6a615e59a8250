package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
)

// mostRights is the largest number of descriptors that the kernel passes with a message
// (SCM_MAX_FD).
const mostRights = 253

// receive reads one message and the descriptors with it. n is 0 when the peer has closed the
// connection. The caller must close the descriptors.
func receive(c *net.UnixConn, b []byte) (n int, fds []int, whole bool, err error) {
	oob := make([]byte, unix.CmsgSpace(4*mostRights))
	n, on, flags, _, err := c.ReadMsgUnix(b, oob)
	fds = rights(oob[:on])
	if errors.Is(err, io.EOF) {
		return 0, fds, true, nil
	}
	return n, fds, flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0, err
}

// rights returns the descriptors in the control messages b.
func rights(b []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if some, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// readMessage reads one message of the right length.
func readMessage(c *net.UnixConn, m *proto.Message) (fds []int, err error) {
	n, fds, whole, err := receive(c, m.Bytes())
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case n != proto.MessageLen || !whole:
		err = fmt.Errorf("a message of %d octets: want %d", n, proto.MessageLen)
	case m.PrivateLen > proto.PrivateMax:
		err = fmt.Errorf("a message with %d octets of private data: want at most %d", m.PrivateLen, proto.PrivateMax)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

// writeMessage sends a message with descriptors.
func writeMessage(c *net.UnixConn, m *proto.Message, fds []int) error {
	var oob []byte
	if len(fds) != 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(m.Bytes(), oob, nil)
	return err
}

// peer is the process at the other end of a connection.
type peer struct {
	pid      int
	uid, gid uint32
	process  *os.File // pidfd
}

// peerOf asks the kernel who is at the other end. The caller must close process.
func peerOf(c *net.UnixConn) (p peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { p, inner = credentials(int(fd)) })
	return p, errors.Join(err, inner)
}

func credentials(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	p := peer{pid: int(cred.Pid), uid: cred.Uid, gid: cred.Gid}
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil && p.pid > 0 { // before Linux 6.5
		pidfd, err = unix.PidfdOpen(p.pid, 0)
	}
	if err != nil {
		return peer{}, fmt.Errorf("no pidfd of process %d: %w", p.pid, err)
	}
	unix.SetNonblock(pidfd, true) // for the poller of package os
	p.process = os.NewFile(uintptr(pidfd), "process")
	return p, nil
}

// ended waits until the process has ended, or its file is closed.
func (p peer) ended() {
	raw, err := p.process.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(set, 0)
		return n != 0 || err != nil
	})
}
