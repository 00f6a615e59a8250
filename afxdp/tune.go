package afxdp

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

const (
	// oldBudget is how many frames one system call sends in copy mode on kernels
	// without XDP_MAX_TX_SKB_BUDGET.
	oldBudget = 32
	// maxSendBuffer is the largest value that SO_SNDBUF accepts.
	maxSendBuffer = math.MaxInt32 / 2
	// perFrame is how many octets the kernel charges to the send buffer for a frame, in
	// addition to the frame's length. They cover the headroom, struct skb_shared_info
	// and struct sk_buff.
	perFrame = 1024
)

// setBudget lets one system call send the whole transmit ring (since Linux 6.17).
func (q *Queue) setBudget() error {
	if q.info.Mode == ModeZeroCopy {
		return nil
	}
	q.info.TxBudget = q.cfg.TxRing
	err := unix.SetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, int(q.cfg.TxRing))
	if errors.Is(err, unix.ENOPROTOOPT) {
		q.info.TxBudget = oldBudget
		return nil
	}
	return err
}

// setBuffer raises the send buffer. In copy mode the kernel charges every frame in
// transmission to the send buffer. A size above net.core.wmem_max needs CAP_NET_ADMIN.
// The kernel may grant less than the default. Info.SendBuffer is the granted size.
// setBuffer fails if the kernel grants less than Config.SendBuffer.
func (q *Queue) setBuffer() error {
	want := uint64(q.cfg.SendBuffer)
	if want == 0 {
		want = min(uint64(q.cfg.TxFrames)*uint64(q.cfg.FrameSize+perFrame), maxSendBuffer)
	}
	err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, int(want))
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, int(want))
	}
	if err != nil {
		return err
	}
	got, err := unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return err
	}
	q.info.SendBuffer = uint32(got)
	if q.cfg.SendBuffer != 0 && uint64(got) < want {
		return fmt.Errorf("got %d octets instead of %d: %w", got, want, unix.EPERM)
	}
	return nil
}
