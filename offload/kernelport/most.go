package kernelport

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// most is the largest number of octets of an Emit.
type most struct {
	emit     int           // result of MaxEmit
	limit    int           // value of Config.Segment
	fixed    int           // value of Config.Emit
	measured clock.Instant // time when emit was read last
}

// read sets emit to Config.Emit, or to the kernel's effective segment size.
func (m *most) read(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_TCP, unix.TCP_MAXSEG)
	if err != nil {
		return fmt.Errorf("read TCP_MAXSEG (is it a TCP socket?): %w", err)
	}
	if m.emit = min(n, m.limit); m.fixed != 0 {
		m.emit = m.fixed
	}
	return nil
}

// refresh reads the segment size again, at most once a second.
func (m *most) refresh(fd int, now clock.Instant) error {
	if m.fixed != 0 || now.Sub(m.measured) < time.Second {
		return nil
	}
	m.measured = now
	return m.read(fd)
}
