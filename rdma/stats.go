package rdma

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/tcp"
)

// TCPStats is what the QP's connection has counted since it was taken over. It
// is zero before, and with KernelPort. When the connection is gone it is what
// was counted at its end.
func (qp *QP) TCPStats(ctx context.Context) (tcp.Stats, error) {
	c := qp.line.Load()
	if c == nil {
		return tcp.Stats{}, nil
	}
	s, err := c.Stats(ctx)
	if err != nil {
		return tcp.Stats{}, fmt.Errorf("TCP counters of QP %d: %w", qp.Number(), err)
	}
	return s, nil
}

// SocketStats is what the AF_XDP sockets of the port with this name, one for
// each queue, have counted since Open. ErrNoPort.
func (a *Adapter) SocketStats(ctx context.Context, port string) ([]afxdp.Stats, error) {
	return a.device.SocketStats(ctx, port)
}
