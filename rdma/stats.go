package rdma

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/tcp"
)

// TCPStats holds the counters of TCP for one connection: segments, octets, losses.
type TCPStats = tcp.Stats

// SocketStats holds the counters, in frames, of the AF_XDP socket of one receive queue.
type SocketStats = afxdp.Stats

// KernelSocketStats is the part of SocketStats that the kernel counts
// (XDP_STATISTICS).
type KernelSocketStats = afxdp.KernelStats

// TCPStats returns the TCP counters of the QP's connection since it was taken over.
// Before that, and with KernelPort, all counters are 0. When the connection is gone,
// TCPStats returns the counters at its end.
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

// SocketStats returns the counters of the AF_XDP sockets of the named port since Open,
// one entry for each queue. SocketStats returns ErrNoPort if the adapter has no port of
// that name.
func (a *Adapter) SocketStats(ctx context.Context, port string) ([]SocketStats, error) {
	return a.device.SocketStats(ctx, port)
}
