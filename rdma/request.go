package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/mpa"
)

// ConnRequest is a peer that wants to be connected and waits for the answer:
// one of Accept, Reject and Close. It is safe for concurrent use.
type ConnRequest struct {
	listener *Listener
	socket   *adapter.Socket
	request  mpa.Request

	local, remote netip.AddrPort
	number        uint64 // of the Listener's TCP connections, from 1

	mu       sync.Mutex
	answered bool
}

// Peer is who asks, and what for.
type Peer struct {
	Local, Remote netip.AddrPort
	// Number is the how manieth of the Listener's peers it is, by when its TCP
	// connection was made. Requests of peers that come at the same time may be
	// given to Accept in another order.
	Number       uint64
	Revision     int  // of MPA
	CRC, Markers bool // it wants the CRC, or Markers from us
	PeerToPeer   bool // it will show us when we may send (RFC 6581)
	// Depths says that the peer gives read depths: how many Reads of ours it
	// serves at a time (IRD) and how many it wants to have under way (ORD), as
	// sent: 16383 leaves it to the applications.
	Depths   bool
	IRD, ORD int
}

// Peer is who asks, and what for.
func (r *ConnRequest) Peer() Peer {
	return Peer{
		Local: r.local, Remote: r.remote, Number: r.number,
		Revision: int(r.request.Revision), CRC: r.request.CRC, Markers: r.request.Markers,
		PeerToPeer: r.request.PeerToPeer, Depths: r.request.Enhanced, IRD: int(r.request.IRD), ORD: int(r.request.ORD),
	}
}

// PrivateData is what the peer's application has to say.
func (r *ConnRequest) PrivateData() []byte { return r.request.Private }

// errEarly is a peer that cannot wait (RFC 5044 §7.1.2).
var errEarly = errors.New("the peer sent something behind its MPA Request, before there was a Reply")

// check reports whether the peer still waits for its answer, as it should.
func (r *ConnRequest) check() error {
	octets, closed, err := early(r.socket.TCPConn)
	switch {
	case octets:
		return errEarly
	case closed && err == nil:
		return errors.New("the peer has closed the connection, and waits for no answer")
	case err != nil:
		return fmt.Errorf("the peer waits for no answer any more: %w", err)
	}
	return nil
}

// Accept connects qp to the peer. When it returns nil receives that were posted
// before are in use, and sends can be posted; they leave when the peer has
// begun, or at once with p.Eager. Conn says what was agreed on.
//
// An error about qp or p, before anything was answered, leaves the request as
// it was. Any other ends it; the QP is dead then, and Err says the same, unless
// the peer had given up before: then it can be connected otherwise.
func (r *ConnRequest) Accept(ctx context.Context, qp *QP, p ConnParams) error {
	if err := r.accept(ctx, qp, p); err != nil {
		return fmt.Errorf("accept %v: %w", r.remote, err)
	}
	return nil
}

func (r *ConnRequest) accept(ctx context.Context, qp *QP, p ConnParams) error {
	p, err := p.fill()
	if err != nil {
		return err
	}
	if qp.adapter != r.listener.adapter {
		return errors.New("the QP is another adapter's")
	}
	reply, agreed, err := r.request.Accept(p.offer())
	if err != nil {
		return err
	}
	agreed.Eager = p.Eager
	ctx, free := qp.adapter.device.While(ctx)
	defer free()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout,
		fmt.Errorf("not connected within %v: %w", p.Timeout, context.DeadlineExceeded))
	defer cancel()
	if ctx, err = qp.begin(ctx); err != nil {
		return err
	}
	defer qp.settle()
	if err := r.answer(); err != nil {
		return err
	}
	err = r.check()
	if err == nil {
		err = r.socket.Patience(p.PeerTimeout)
	}
	if err != nil {
		r.socket.Close()
		return err
	}
	return reason(ctx, qp.run(ctx, r.socket, agreed, reply))
}

// answer makes sure that there is one answer only.
func (r *ConnRequest) answer() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return ErrAnswered
	}
	r.answered = true
	r.listener.adapter.letGo(r)
	return nil
}

// Reject tells the peer that its connection is not wanted, with private data
// for its application: as much as ConnParams.PrivateData. The error says why
// the peer cannot be told; the connection is closed anyway.
func (r *ConnRequest) Reject(private []byte) error {
	reply, err := r.request.Reject(private)
	if err != nil {
		return fmt.Errorf("reject %v: %w", r.remote, err) // it can be tried again with less
	}
	if err := r.answer(); err != nil {
		return fmt.Errorf("reject %v: %w", r.remote, err)
	}
	defer r.socket.Close()
	if _, err := r.socket.Write(reply); err != nil {
		return fmt.Errorf("reject %v: %w", r.remote, err)
	}
	return nil
}

// Close closes the connection without a word, unless the request has been
// answered.
func (r *ConnRequest) Close() error {
	if r.answer() != nil {
		return nil
	}
	return r.socket.Close()
}
