package rdma

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/adapter"
)

// Dial connects the QP to address, "host:port", in the adapter's network namespace. The
// kernel connects TCP, then the two ends negotiate MPA, and then the adapter takes the
// connection over. When Dial returns nil, sends can be posted. Conn returns what the
// ends agreed on.
//
// If a host has several addresses, Dial tries all of them. Dial begins with the next
// address when an address fails or has not answered for 250 ms. Dial uses the first
// address that answers (RFC 8305).
//
// An error leaves the QP as it was, ready for another Dial, with one exception: if the
// connection was lost during the take-over, the QP is dead and Err returns the same
// error. Errors: *RejectedError with the peer's private data, which is also
// ErrMarkersRefused if Markers may be the reason; ErrNotMPA if the peer's answer is no
// valid MPA Reply; ErrMismatch if the Reply demands what was not offered; ErrNoPort;
// ErrConnected; ErrClosed.
//
// If the peer closes its direction directly after its Reply, the connection ends before
// it can be taken over. With Config.Ports this is a loss during the take-over, so that
// the QP is dead.
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
	if qp.distant != nil {
		if err := p.throughDaemon(); err != nil {
			return err
		}
	}
	ctx, free := qp.adapter.device.While(ctx)
	defer free()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout,
		fmt.Errorf("no connection within %v: %w", p.Timeout, context.DeadlineExceeded))
	defer cancel()
	if err := qp.adapter.attempts.Enter(ctx); err != nil {
		return err
	}
	defer qp.adapter.attempts.Leave()
	if ctx, err = qp.begin(ctx); err != nil {
		return err
	}
	defer qp.settle()
	return reason(ctx, qp.connect(ctx, address, p))
}

// reason returns the cause of ctx's end if that led to err. Otherwise it returns err.
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
	if qp.distant != nil {
		return qp.dialThrough(ctx, address, p)
	}
	s, err := qp.adapter.device.Dial(ctx, address, adapter.DialOptions{Local: p.Local, TOS: adapter.TOS(p.TOS)})
	if err != nil {
		return err
	}
	if err := s.Patience(p.PeerTimeout); err != nil {
		s.Close()
		return err
	}
	free := bound(ctx, s)
	agreed, err := propose(s.TCPConn, p.offerOn(s), p.Requested)
	free()
	if err != nil {
		s.Close()
		return explain(err)
	}
	return qp.run(ctx, s, p.complete(agreed), nil)
}
