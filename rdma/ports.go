package rdma

import "context"

// Drain moves every connection of a port to other ports of the adapter: to the port
// through which the kernel's route leads, or else to another one through which the peer
// can be reached. The peers and the QPs do not notice. Each connection that moves is
// reported by an event PathMoved. Until Undrain no connection moves to the port, and a
// connection that is made through the port moves away at once.
//
// The port stays open, because peers may go on sending to it. Drain returns one error for
// all connections that could not move; they go on at the port. Drain fails if the adapter
// has no such port, or no other.
func (a *Adapter) Drain(ctx context.Context, port string) error { return a.device.Drain(ctx, port) }

// Undrain ends the effect of Drain. Connections whose route leads through the port come.
func (a *Adapter) Undrain(port string) error { return a.device.Undrain(port) }

// AddPort opens one more network interface for the adapter. Connections follow their
// routes to the port from then on, and new connections can be made through it. An
// interface that was deleted and made again can be added again. The adapter keeps its room
// for connections (Config.MaxFlows), and can have 1024 receive queues in its life.
//
// AddPort fails with the errors of Open, if the adapter has the port already, and with
// KernelPort.
func (a *Adapter) AddPort(ctx context.Context, port string) error {
	return a.device.AddPort(ctx, port)
}

// RemovePort drains a port and closes it. If a connection cannot move, the port stays, and
// stays drained. The last port cannot be removed. Change the route before, so that the
// peers no longer send to the port: the kernel drops what arrives there later.
func (a *Adapter) RemovePort(ctx context.Context, port string) error {
	return a.device.RemovePort(ctx, port)
}
