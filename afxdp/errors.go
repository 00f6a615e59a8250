package afxdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// condition is an error of this package that wraps an error of the kernel. errors.Is
// finds both.
type condition struct {
	text  string
	errno unix.Errno
}

func (c *condition) Error() string { return c.text }
func (c *condition) Unwrap() error { return c.errno }

// These errors are about a queue as a whole.
var (
	// ErrLinkDown means that the interface is not up. The queue stays usable. The
	// kernel sends the queued frames when the link is up again. ErrLinkDown wraps
	// unix.ENETDOWN.
	ErrLinkDown error = &condition{"link is down", unix.ENETDOWN}
	// ErrGone means that the interface was removed. The caller can only call Close.
	// ErrGone wraps unix.ENXIO.
	ErrGone error = &condition{"interface is gone", unix.ENXIO}
	// ErrInUse means that another socket is bound to the queue. ErrInUse wraps
	// unix.EBUSY.
	ErrInUse error = &condition{"queue in use", unix.EBUSY}
	// ErrClosed means that Close was called. It wraps unix.EBADF.
	ErrClosed error = &condition{"queue is closed", unix.EBADF}
)

// hints lists remedies for errors of Open, by step and error.
var hints = []struct {
	step  string
	errno unix.Errno
	hint  string
}{
	{stepSocket, unix.EPERM, "grant CAP_NET_RAW or run as root"},
	{stepSocket, unix.EAFNOSUPPORT, "the kernel has no AF_XDP (CONFIG_XDP_SOCKETS)"},
	{stepUmem, unix.ENOBUFS, "the frames exceed the limit on locked memory: raise it (ulimit -l unlimited, LimitMEMLOCK=infinity) or grant CAP_IPC_LOCK"},
	{stepUmem, unix.ENOMEM, "not enough memory for the frames: use fewer or smaller ones"},
	{stepRings, unix.ENOMEM, "not enough memory for the rings: make them smaller"},
	{stepBind, unix.ENODEV, "no such interface in this network namespace"},
	{stepBind, unix.EINVAL, "has the interface that many queues? see ethtool -l"},
	{stepBind, unix.ENETDOWN, "set the interface up (ip link set dev … up)"},
	{stepBind, unix.EPERM, "grant CAP_NET_RAW or run as root"},
	{stepBuffer, unix.EPERM, "grant CAP_NET_ADMIN or set SendBuffer within net.core.wmem_max"},
}

// explain adds the failed step and the remedy, if hints has one, to an error.
func explain(step string, err error) error {
	for _, h := range hints {
		if h.step == step && errors.Is(err, h.errno) {
			return fmt.Errorf("%s: %w: %s", step, err, h.hint)
		}
	}
	return fmt.Errorf("%s: %w", step, err)
}
