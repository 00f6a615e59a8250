package kernelport

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/stream"
)

var (
	// ErrClosed ends a connection that was closed before it was run.
	ErrClosed = errors.New("closed before it was run")
	// ErrRunning is returned if Run is called a second time, or after Close.
	ErrRunning = errors.New("the kernel port's connection is running or has ended: Run is called once")
)

// faults maps the kernel's errors to the errors of package stream.
var faults = map[unix.Errno]error{
	unix.ECONNRESET:   stream.ErrReset,
	unix.EPIPE:        stream.ErrReset,
	unix.ENOTCONN:     stream.ErrReset,
	unix.ETIMEDOUT:    stream.ErrTimeout,
	unix.ECONNABORTED: stream.ErrAborted,
	unix.EHOSTUNREACH: stream.ErrUnreachable,
	unix.ENETUNREACH:  stream.ErrUnreachable,
	unix.ENETDOWN:     stream.ErrPort,
	unix.ENODEV:       stream.ErrPort,
}

// fault wraps an error of a system call on the socket.
func fault(call string, err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) && faults[errno] != nil {
		return fmt.Errorf("%w: %s: %w", faults[errno], call, errno)
	}
	return fmt.Errorf("%s: %w", call, err)
}
