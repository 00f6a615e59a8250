package rdma

import (
	"context"
	"errors"
	"fmt"
)

// Dial connects the QP to address, "host:port", in the adapter's network
// namespace: TCP by the kernel, then MPA, then the connection is taken over.
// When it returns nil sends can be posted; Conn says what was agreed on.
//
// A host with several addresses is tried at all of them: the next one begins when
// one fails or has taken 250 ms, and the first that answers is it (RFC 8305).
//
// An error leaves the QP as it was, to dial again, unless the connection was
// lost while it was taken over: then it is dead, and Err says the same. Errors:
// *RejectedError with the peer's private data, which is ErrMarkersRefused where
// that may be why, ErrNotMPA for a peer that does not speak MPA as it should,
// ErrMismatch for one that cannot agree, ErrNoPort, ErrConnected, ErrClosed.
//
// A peer that closes its direction right behind its Reply ends the connection
// before it can be taken over: with Config.Ports that is such a loss.
func (qp *QP) Dial(ctx context.Context, address string, p ConnParams) error {
	if err := qp.dial(ctx, address, p); err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	return nil
}

func (qp *QP) dial(ctx context.Context, address string, p ConnParams) error {
	p, err := p.fill()
	if err != nil {
		return err
	}
	if _, err := p.offer().Request(); err != nil {
		return err
	}
	ctx, free := qp.adapter.device.While(ctx)
	defer free()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout,
		fmt.Errorf("no connection within %v: %w", p.Timeout, context.DeadlineExceeded))
	defer cancel()
	if ctx, err = qp.begin(ctx); err != nil {
		return err
	}
	defer qp.settle()
	return reason(ctx, qp.connect(ctx, address, p))
}

// reason is err, or what ended ctx if that led to it.
func reason(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%v)", cause, err)
}

func (qp *QP) connect(ctx context.Context, address string, p ConnParams) error {
	s, err := qp.adapter.device.Dial(ctx, address)
	if err != nil {
		return err
	}
	if err := s.Patience(p.PeerTimeout); err != nil {
		s.Close()
		return err
	}
	free := bound(ctx, s)
	agreed, err := propose(s.TCPConn, p.offer())
	free()
	if err != nil {
		s.Close()
		return explain(err)
	}
	return qp.run(ctx, s, agreed, nil)
}
