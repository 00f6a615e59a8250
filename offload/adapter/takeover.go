package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/stream"
)

// Socket is an established connection that the kernel still runs, together with the
// port through which its packets leave.
type Socket struct {
	*net.TCPConn
	adapter *Adapter
	port    *Port // port of the connection; nil: the kernel's TCP
}

// Socket returns the Socket of an accepted connection. Socket fails with ErrNoPort if
// the connection's packets leave through no port of the adapter.
func (a *Adapter) Socket(ctx context.Context, c *net.TCPConn) (*Socket, error) {
	p, err := a.portFor(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Socket{TCPConn: c, adapter: a, port: p}, nil
}

// Path returns a name for the way of the connection's packets between the wire and the
// ULP.
func (s *Socket) Path() string { return s.port.path() }

// Offloaded reports whether an engine will run the connection, and not the kernel.
func (s *Socket) Offloaded() bool { return s.port != nil }

// Ends returns the connection's two addresses. If an address is IPv4-mapped, Ends
// returns the IPv4 address.
func (s *Socket) Ends() (local, remote netip.AddrPort) { return s.adapter.Ends(s.TCPConn) }

// TakeOver holds the options of a take-over.
type TakeOver struct {
	Kind     bpf.Kind // kind of the ULP in the flow entry
	Accepted bool     // a listener has accepted the connection

	// LastWords, if set, writes the octets that must leave before the ULP has the
	// connection, such as a responder's Reply. LastWords writes them to the socket. If
	// LastWords fails, the take-over fails.
	LastWords func() error

	// Emit is the stream's MaxEmit in octets over the kernel's TCP. 0 means the kernel's
	// segment size. An engine ignores it.
	Emit int

	// Moved, if set and progress is inline, is called after each move of the connection
	// to another runner. Moved must not call the connection. The first call may come
	// before TakeOver returns.
	Moved func()
}

// TakeOver makes the ULP the owner of the connection. TakeOver closes the socket in any
// case. On error the connection is lost. The caller must wake the Conn if the ULP
// already has something to send.
//
// On a port, LastWords is called only after the engine has begun to keep the peer's
// segments. Otherwise an initiator could send everything and close before the take-over
// is done. TakeOver cannot take over such a half-closed connection.
func (s *Socket) TakeOver(ctx context.Context, ulp stream.ULP, how TakeOver) (c *Conn, err error) {
	defer s.Close()
	if s.port == nil {
		c, err = s.runKernelPort(ulp, how)
	} else {
		c, err = s.takeFlow(ctx, ulp, how)
	}
	if errors.Is(err, handoff.ErrNotEstablished) || errors.Is(err, syscall.ENOTCONN) {
		return nil, fmt.Errorf("the peer ended the connection before it was taken over: %w", err)
	}
	if err != nil {
		return nil, err
	}
	c.inline = s.adapter.inline
	return c, nil
}

// takeFlow takes the connection over from the kernel.
func (s *Socket) takeFlow(ctx context.Context, ulp stream.ULP, how TakeOver) (*Conn, error) {
	o := nic.Options{Kind: how.Kind, Queue: nic.AnyQueue, Parked: how.LastWords, Accepted: how.Accepted}
	if s.adapter.inline {
		o.Moved = how.Moved
	}
	f, err := s.port.nic.Take(ctx, s.TCPConn, ulp, o)
	if err != nil {
		return nil, err
	}
	s.adapter.leaveDrained(s.port, f)
	return &Conn{carrier: f, adapter: s.adapter, flow: f}, nil
}

// runKernelPort leaves the connection to the kernel's TCP.
func (s *Socket) runKernelPort(ulp stream.ULP, how TakeOver) (*Conn, error) {
	if how.LastWords != nil {
		if err := how.LastWords(); err != nil {
			return nil, err
		}
	}
	k, err := kernelport.New(s.TCPConn, ulp, kernelport.Config{Emit: how.Emit, Table: s.adapter.table, After: s.adapter.board.Deliver, Lot: s.adapter.lot})
	if err != nil {
		return nil, err
	}
	// The ULP gets the error that ends the connection. k has its own descriptor, because the
	// socket is closed now or soon.
	s.adapter.running.Add(1)
	if err := k.Start(s.adapter.running.Done); err != nil {
		s.adapter.running.Done()
		return nil, err
	}
	return &Conn{carrier: kernelCarrier{k}, adapter: s.adapter}, nil
}
