package loader

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplainAttach covers errors of drivers that the tests' links never return.
func TestExplainAttach(t *testing.T) {
	n := &Net{} // these errors need no request to the kernel
	l := Link{Name: "eth1", Port: "eth1", Driver: "foo", PortMTU: 9000, RxQueues: 2}
	for _, row := range []struct {
		errno unix.Errno
		is    error
		says  string
	}{
		{unix.ERANGE, ErrMTU, "ip link set eth1 mtu 3506"},
		{unix.EINVAL, ErrMTU, "ip link set eth1 mtu 3506"},
		{unix.ENOSPC, ErrChannels, "ethtool -L eth1"},
		{unix.EOPNOTSUPP, ErrNoNative, `"foo" has no native XDP: ask for generic`},
		{unix.EPERM, ErrPermission, "attach a program to eth1"},
		{unix.EIO, unix.EIO, "eth1"},
	} {
		err := n.ExplainAttach(l, fmt.Errorf("failed to attach link: %w", row.errno))
		if !errors.Is(err, row.is) || !errors.Is(err, row.errno) {
			t.Errorf("%v: %v is not %v", row.errno, err, row.is)
		}
		if !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %q does not say %q", row.errno, err, row.says)
		}
	}
}
