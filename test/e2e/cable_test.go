package e2e

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// injector puts frames on the cable unchanged, from one side's end. The frames pass that side's traffic control. No
// packet socket of that side sees them.
type injector struct{ fd int }

func (r *rig) injectFrom(side pair.Side) *injector {
	r.Helper()
	i := new(injector)
	r.in(side, func() (err error) {
		i.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(i.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
		return unix.Bind(i.fd, &unix.SockaddrLinklayer{Ifindex: r.pair.Ends[side].Index})
	})
	r.Cleanup(func() { unix.Close(i.fd) })
	return i
}

// send sends one frame, and tries again until the cable accepts it.
func (i *injector) send(frame []byte) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Microsecond) {
		_, err := unix.Write(i.fd, frame)
		full := errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
		if !full || time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("inject a frame of %d octets: %w", len(frame), err)
			}
			return nil
		}
	}
}
