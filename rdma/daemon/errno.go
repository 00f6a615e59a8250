package daemon

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
)

// errnos has the errno for errors of package rdma. The first row that fits counts.
var errnos = []struct {
	err   error
	errno unix.Errno
}{
	{rdma.ErrInUse, unix.EBUSY},
	{rdma.ErrTableFull, unix.ENOMEM},
	{rdma.ErrPagesFull, unix.ENOMEM},
	{rdma.ErrQuota, unix.EDQUOT},
	{rdma.ErrClosed, unix.ENODEV},
	{rdma.ErrNoPort, unix.ENODEV},
	{rdma.ErrConnected, unix.EISCONN},
	{rdma.ErrNotConnected, unix.ENOTCONN},
	{rdma.ErrNoAccess, unix.EACCES},
	{rdma.ErrMemoryGone, unix.EFAULT},
	{rdma.ErrAnswered, unix.EINVAL},
	{os.ErrPermission, unix.EACCES},
	{os.ErrDeadlineExceeded, unix.ETIMEDOUT},
	{context.DeadlineExceeded, unix.ETIMEDOUT},
	{context.Canceled, unix.ECANCELED},
}

// errnoOf returns the errno that says err best, and 0 for nil.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	}
	for _, row := range errnos {
		if errors.Is(err, row.err) {
			return row.errno
		}
	}
	return unix.EINVAL
}
