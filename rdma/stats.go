package rdma

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/tcp"
)

// TCPStats is what TCP has counted for one connection: segments, octets, losses.
type TCPStats = tcp.Stats

// SocketStats is what the AF_XDP socket of one receive queue has counted: frames.
type SocketStats = afxdp.Stats

// KernelSocketStats is the part of SocketStats that the kernel counts
// (XDP_STATISTICS).
type KernelSocketStats = afxdp.KernelStats

// TCPStats is what the QP's connection has counted since it was taken over. It
// is zero before, and with KernelPort. When the connection is gone it is what
// was counted at its end.
func (qp *QP) TCPStats(ctx context.Context) (TCPStats, error) {
	c := qp.conn.Load()
	if c == nil {
		return TCPStats{}, nil
	}
	s, err := c.Stats(ctx)
	if err != nil {
		return TCPStats{}, fmt.Errorf("TCP counters of QP %d: %w", qp.Number(), err)
	}
	return s, nil
}

// SocketStats is what the AF_XDP sockets of the port with this name, one for
// each queue, have counted since Open. ErrNoPort.
func (a *Adapter) SocketStats(ctx context.Context, port string) ([]SocketStats, error) {
	return a.device.SocketStats(ctx, port)
}
