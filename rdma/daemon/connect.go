package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// resolve is OpResolve. The kernel's routes say which local address leads to the peer.
func (c *client) resolve(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	a := m.Address()
	src, err := addrPort(a.Src)
	if err != nil {
		return reply{}, err
	}
	dst, err := addrPort(a.Dst)
	if err != nil {
		return reply{}, err
	}
	if !dst.Addr().IsValid() || dst.Addr().IsUnspecified() {
		return reply{}, fmt.Errorf("resolve %v: %w", dst, unix.EINVAL)
	}
	i.mu.Lock()
	err = i.resolve(src, dst)
	local := i.local
	i.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	a.Src, a.PortNum = sockaddr(local), c.daemon.portOf(local.Addr())
	i.event(cmAddrResolved, 0, func(m *proto.Message) { m.CMEvent().PortNum = a.PortNum })
	return reply{}, nil
}

// resolve finds the local address. The caller must hold i.mu.
func (i *id) resolve(src, dst netip.AddrPort) error {
	if i.stage != fresh && i.stage != bound {
		return i.wrongStage("resolve")
	}
	d := i.client.daemon
	if a := src.Addr(); a.IsValid() && !a.IsUnspecified() && d.portOf(a) == 0 {
		return fmt.Errorf("no port has the address %v: %w", a, unix.ENODEV)
	}
	local, err := route(i.local.Addr(), src.Addr(), dst)
	if err != nil {
		return err
	}
	if d.portOf(local) == 0 {
		return fmt.Errorf("the way to %v leaves %v, which no port has: %w", dst, local, unix.ENODEV)
	}
	if i.stage == fresh && src.Addr().IsValid() && (src.Port() != 0 || !src.Addr().IsUnspecified()) {
		if err := i.bind(src); err != nil {
			return err
		}
	}
	i.local = netip.AddrPortFrom(local, i.local.Port())
	i.stage, i.remote = resolved, dst
	return nil
}

// route returns the local address from which packets to dst leave. One of the first two
// arguments may fix the address. No packet is sent.
func route(have, want netip.Addr, dst netip.AddrPort) (netip.Addr, error) {
	from := &net.UDPAddr{}
	for _, a := range []netip.Addr{want, have} {
		if a.IsValid() && !a.IsUnspecified() {
			from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
		}
	}
	if from.IP == nil {
		from = nil
	}
	if dst.Port() == 0 {
		dst = netip.AddrPortFrom(dst.Addr(), 1)
	}
	c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(dst))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// route is OpRoute. TCP needs nothing.
func (c *client) route(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	if i.stage != resolved {
		defer i.mu.Unlock()
		return reply{}, i.wrongStage("resolve the route")
	}
	i.stage = routed
	local := i.local
	i.mu.Unlock()
	i.event(cmRouteResolved, 0, func(m *proto.Message) { m.CMEvent().PortNum = c.daemon.portOf(local.Addr()) })
	return reply{}, nil
}

// params returns the parameters of a connection that a message asks for.
func (c *client) params(m *proto.Message) (rdma.ConnParams, error) {
	if most := mostPrivate(c.daemon.limits); int(m.PrivateLen) > most {
		return rdma.ConnParams{}, fmt.Errorf("%d octets of private data, and %d is the most: %w", m.PrivateLen, most, unix.EINVAL)
	}
	q := m.Conn()
	return rdma.ConnParams{
		PrivateData: append([]byte(nil), m.PrivateData[:m.PrivateLen]...),
		IRD:         depth(q.ResponderResources), ORD: depth(q.InitiatorDepth),
		Extensions: rdma.ExtRFC7306 | rdma.ExtImmediate,
	}, nil
}

// attach notes that an identifier connects the QP. A QP is connected only once.
func (q *qp) attach() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.attached || q.state() == stateErr {
		return fmt.Errorf("QP %d is connected already, or in error: %w", q.qp.Number(), unix.EINVAL)
	}
	q.attached = true
	return nil
}

// detach takes attach back when the QP has not been connected, and can be.
func (q *qp) detach() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.attached = false
}

// dialsMost times Config.Order is the longest that an attempt to connect waits for all
// those before it. A program that asks for many connections to distant or silent hosts does
// not wait for each of them.
const dialsMost = 10

// connect is OpConnect. The connections of a client begin in the order of the requests, as
// with drivers that connect within rdma_connect.
func (c *client) connect(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	p, err := c.params(m)
	if err != nil {
		return reply{}, err
	}
	q, err := c.numbered(m.Conn().QPN)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stage != routed {
		return reply{}, i.wrongStage("connect")
	}
	if err := q.attach(); err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithCancel(c.life)
	if i.explicit {
		p.Local = i.local
	}
	p.TOS = i.tos
	kind, remote := uint32(cmEstablished), i.remote
	if m.Conn().Flags&proto.ConnResponse != 0 {
		kind = cmConnectResponse
	}
	if i.place != nil {
		i.place.yield()
	}
	place := c.dials.Join()
	p.Requested = place.Leave
	err = c.run(func() {
		defer cancel()
		defer place.Leave()
		place.Wait(ctx)
		i.dial(ctx, q, remote, p, kind)
	})
	if err != nil {
		cancel()
		place.Leave()
		q.detach()
		return reply{}, err
	}
	i.stage, i.qp, i.cancel = connecting, q, cancel
	return reply{}, nil
}

// dial connects, and tells the client how it went.
func (i *id) dial(ctx context.Context, q *qp, remote netip.AddrPort, p rdma.ConnParams, kind uint32) {
	err := q.qp.Dial(ctx, remote.String(), p)
	if err == nil {
		i.isUp(q, kind)
		return
	}
	i.client.log.Info("not connected", "peer", remote, "err", err)
	q.detach()
	i.failed(err)
}

// failed sends the event of an attempt that has failed. The identifier may try again.
func (i *id) failed(err error) {
	i.mu.Lock()
	if i.stage == connecting {
		i.stage = routed
	}
	i.qp, i.cancel = nil, nil
	i.mu.Unlock()
	roce := i.client.style == proto.PersonalityRoCE
	var rejected *rdma.RejectedError
	switch {
	case errors.As(err, &rejected):
		status := -int32(unix.ECONNREFUSED)
		if roce {
			status = rejectedByConsumer
		}
		i.event(cmRejected, status, func(m *proto.Message) {
			m.PrivateLen = uint32(copy(m.PrivateData[:], rejected.PrivateData))
		})
	case errors.Is(err, unix.ECONNREFUSED):
		status := -int32(unix.ECONNREFUSED)
		if roce {
			status = rejectedNoListener
		}
		i.event(cmRejected, status, nil)
	case errors.Is(err, unix.ECONNRESET):
		i.event(cmRejected, -int32(unix.ECONNRESET), nil)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		i.event(cmUnreachable, -int32(unix.ETIMEDOUT), nil)
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, rdma.ErrNoPort):
		i.event(cmUnreachable, -int32(errnoOf(err)), nil)
	default:
		i.event(cmConnectError, -int32(errnoOf(err)), nil)
	}
}
