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

// ConnRequest is a peer's request for a connection. The program must answer it by exactly
// one of Accept, Reject and Close. A ConnRequest is safe for concurrent use.
type ConnRequest struct {
	listener *Listener
	socket   *adapter.Socket
	request  mpa.Request

	distant uint64 // handle of the request in the daemon, instead of socket; 0: there is no daemon

	local, remote netip.AddrPort
	number        uint64 // position among the Listener's TCP connections, from 1

	mu       sync.Mutex
	answered bool
}

// Peer describes the peer that asks for a connection and its offer.
type Peer struct {
	Local, Remote netip.AddrPort
	// Number is the position of the peer's TCP connection among those of the Listener,
	// from 1. A Request that takes longer than ListenConfig.Order may come to Accept after
	// those of later peers.
	Number       uint64
	Revision     int  // revision of MPA
	CRC, Markers bool // the peer asks for the CRC, and for Markers in the FPDUs of this end
	PeerToPeer   bool // the peer will send the first message, after which this end may send (RFC 6581)
	// Depths says that the peer has sent read depths. IRD is how many Reads of this end
	// the peer serves at a time. ORD is how many Reads the peer wants outstanding at a
	// time. Both are as the peer sent them. 16383 leaves the depth to the applications.
	Depths   bool
	IRD, ORD int
	// Extensions are the extensions of stag that the peer offers.
	Extensions Extensions
}

// Peer returns the peer and its offer.
func (r *ConnRequest) Peer() Peer {
	return Peer{
		Local: r.local, Remote: r.remote, Number: r.number,
		Revision: int(r.request.Revision), CRC: r.request.CRC, Markers: r.request.Markers,
		PeerToPeer: r.request.PeerToPeer, Depths: r.request.Enhanced, IRD: int(r.request.IRD), ORD: int(r.request.ORD), Extensions: r.request.Extensions,
	}
}

// PrivateData returns the private data of the peer's Request.
func (r *ConnRequest) PrivateData() []byte { return r.request.Private }

// errEarly is the error for a peer that sends before the Reply (RFC 5044 §7.1.2).
var errEarly = errors.New("the peer sent something behind its MPA Request, before there was a Reply")

// check returns an error if the peer no longer waits for an answer.
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

// Accept connects qp to the peer. When Accept returns nil, messages go into the receives
// that were posted before, and sends can be posted. Sends leave when the peer has sent
// its first message, or at once with p.Eager. Conn returns what the ends agreed on.
//
// If an error is about qp or p, no answer has been sent, and the request can still be
// answered. Any other error ends the request. The QP is dead then, and Err returns the
// same error, with one exception: if the peer had given up before, the QP can be
// connected to another peer.
func (r *ConnRequest) Accept(ctx context.Context, qp *QP, p ConnParams) error {
	if err := r.accept(ctx, qp, p); err != nil {
		return fmt.Errorf("accept %v: %w", r.remote, err)
	}
	return nil
}

func (r *ConnRequest) accept(ctx context.Context, qp *QP, p ConnParams) error {
	p, err := p.fillAccept()
	if err != nil {
		return err
	}
	if qp.adapter != r.listener.adapter {
		return errors.New("the QP is another adapter's")
	}
	if r.distant != 0 {
		if err := p.throughDaemon(); err != nil {
			return err
		}
		return r.acceptDistant(ctx, qp, p)
	}
	reply, agreed, err := r.request.Accept(p.offerOn(r.socket))
	if err != nil {
		return err
	}
	agreed = p.complete(agreed)
	ctx, free := qp.adapter.device.While(ctx)
	defer free()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout,
		fmt.Errorf("not connected within %v: %w", p.Timeout, context.DeadlineExceeded))
	defer cancel()
	if err := qp.adapter.attempts.Enter(ctx); err != nil {
		return err
	}
	defer qp.adapter.attempts.Leave()
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

// answer marks the request as answered. answer returns ErrAnswered if the request has
// been answered before.
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

// Reject refuses the connection. Reject sends private data to the peer's application, at
// most as much as ConnParams.PrivateData. An error says why the Reply could not be sent.
// The connection is closed even then.
func (r *ConnRequest) Reject(private []byte) error {
	reply, err := r.request.Reject(private)
	if err != nil {
		return fmt.Errorf("reject %v: %w", r.remote, err) // no answer was sent: the caller can try again with less
	}
	if err := r.answer(); err != nil {
		return fmt.Errorf("reject %v: %w", r.remote, err)
	}
	if r.distant != 0 {
		return r.rejectDistant(private)
	}
	defer r.socket.Close()
	if _, err := r.socket.Write(reply); err != nil {
		return fmt.Errorf("reject %v: %w", r.remote, err)
	}
	return nil
}

// Close closes the connection without a Reply, unless the request has been answered.
func (r *ConnRequest) Close() error {
	if r.answer() != nil {
		return nil
	}
	if r.distant != 0 {
		return r.dropDistant()
	}
	return r.socket.Close()
}
