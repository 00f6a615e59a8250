package handoff

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// The limits of TCP_MAXSEG.
const (
	minMSS = 88
	maxMSS = 32767
)

// Announce makes a socket announce an MSS of at most mss to its peers: to be
// called before it connects or listens. What it accepts does the same.
func Announce(c syscall.RawConn, mss int) error {
	var inner error
	err := c.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_MAXSEG, max(minMSS, min(mss, maxMSS)))
	})
	if err := errors.Join(err, inner); err != nil {
		return fmt.Errorf("announce an MSS of %d: %w", mss, err)
	}
	return nil
}
