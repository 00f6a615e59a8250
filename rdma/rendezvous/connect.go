package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// Errors of Connect.
var (
	// ErrMistaken means that the QP at the other end has been told to connect to another QP.
	ErrMistaken = errors.New("the QP at the other end has been told to connect to another QP")
	// ErrAbsent means that nobody at the other end has connected the QP there to this one in
	// time.
	ErrAbsent = errors.New("nobody has connected the QP at the other end to this one")
	// ErrForeign means that something else than an Exchange answers at the other end.
	ErrForeign = errors.New("the answer is not that of an exchange of QP numbers")
)

// Connect connects a QP of the Exchange's adapter to the QP with the number qpn at the address
// remote, whose end must call Connect too, for this QP at the address local. local is an
// address of this host that leads to remote. Any number of calls may run at the same time.
//
// p are the parameters of the connection. PrivateData and Local must be empty. Both ends
// should give the same parameters. p.Timeout limits the whole call; 0 means 30 s.
//
// If the other end does not come in time, the error is ErrAbsent, with the last reason, and
// the QP can be connected again, unless it is dead. Other errors: ErrMistaken, ErrForeign,
// and those of rdma.QP.Dial and rdma.ConnRequest.Accept that no later attempt mends.
func (x *Exchange) Connect(ctx context.Context, qp *rdma.QP, local, remote netip.Addr, qpn uint32, p rdma.ConnParams) error {
	to := peer{plain(remote), qpn}
	if err := x.connect(ctx, qp, local, remote, to, p); err != nil {
		return fmt.Errorf("connect QP %d to %v: %w", qp.Number(), to, err)
	}
	return nil
}

func (x *Exchange) connect(ctx context.Context, qp *rdma.QP, local, remote netip.Addr, to peer, p rdma.ConnParams) error {
	local, remote = local.Unmap(), remote.Unmap()
	own := peer{plain(local), qp.Number()}
	switch {
	case len(p.PrivateData) != 0 || p.Local.IsValid():
		return errors.New("the fields PrivateData and Local are the exchange's: leave them out")
	case own == to:
		return errors.New("this is the QP itself")
	case p.Timeout < 0:
		return fmt.Errorf("a Timeout of %v: choose 0 or more", p.Timeout)
	}
	limit := p.Timeout
	if limit == 0 {
		limit = presetTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v", ErrAbsent, limit))
	defer cancel()
	stop := context.AfterFunc(x.life, cancel)
	defer stop()

	w := &wait{from: to}
	if !own.less(to) {
		w.came = make(chan *rdma.ConnRequest, 1)
	}
	if err := x.enter(own.qpn, w); err != nil {
		return err
	}
	defer x.leave(own.qpn, w)
	p.Timeout = attemptTime
	var err error
	if w.came == nil {
		p.PrivateData = message{asks, own.qpn, to.qpn}.encode()
		p.Local = netip.AddrPortFrom(local, 0)
		err = x.dial(ctx, qp, remote, message{accepts, to.qpn, own.qpn}, p)
	} else {
		p.PrivateData = message{accepts, own.qpn, to.qpn}.encode()
		p.TOS = 0 // the Listener's
		err = x.accept(ctx, qp, w, p)
	}
	if err != nil && x.life.Err() != nil {
		return context.Cause(x.life)
	}
	return err
}

// enter adds a call of Connect for the QP with this number. Requests that have come before
// are given to it.
func (x *Exchange) enter(number uint32, w *wait) error {
	x.mu.Lock()
	switch {
	case x.closed:
		x.mu.Unlock()
		return fmt.Errorf("the exchange is %w", rdma.ErrClosed)
	case x.waits[number] != nil:
		x.mu.Unlock()
		return errors.New("it is being connected")
	}
	x.waits[number] = w
	x.running.Add(1)
	mine, others := x.take(w.from, number)
	if mine != nil && w.came != nil {
		w.came <- mine.request
	} else if mine != nil {
		others = append(others, mine) // this end dials, and so does the other one: it breaks the rule
	}
	x.mu.Unlock()
	for _, e := range others {
		answer := mistaken
		if e.from == w.from && w.came != nil {
			answer = notYet
		}
		x.reject(e.request, message{answer, number, e.from.qpn}.encode())
	}
	return nil
}

// leave removes a call of Connect.
func (x *Exchange) leave(number uint32, w *wait) {
	x.mu.Lock()
	delete(x.waits, number)
	x.mu.Unlock()
	select {
	case r := <-w.came: // blocks for ever if came is nil, so that default is taken
		_ = r.Close() // nobody waits for it
	default:
	}
	x.running.Done()
}

// dial dials the other end until it accepts.
func (x *Exchange) dial(ctx context.Context, qp *rdma.QP, remote netip.Addr, want message, p rdma.ConnParams) error {
	address := net.JoinHostPort(remote.String(), strconv.Itoa(int(x.cfg.Port)))
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := qp.Dial(ctx, address, p)
		if err == nil {
			if m, ok := parse(qp.Conn().PrivateData); !ok || m != want {
				qp.Abort()
				return ErrForeign
			}
			return nil
		}
		if ctx.Err() != nil {
			return over(ctx, err)
		}
		if err := final(qp, err); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return over(ctx, err)
		}
	}
}

// accept waits for the Request of the other end, and accepts it. If the peer has given the
// Request up, accept waits for the next one.
func (x *Exchange) accept(ctx context.Context, qp *rdma.QP, w *wait, p rdma.ConnParams) error {
	last := errors.New("it has not dialled")
	for {
		select {
		case r := <-w.came:
			err := r.Accept(ctx, qp, p)
			if err == nil {
				return nil
			}
			_ = r.Close() // Accept may have failed before it answered
			if err := final(qp, err); err != nil {
				return err
			}
			last = err
		case <-ctx.Done():
			return over(ctx, last)
		}
	}
}

// over returns the error of an attempt that the end of ctx has ended. last is the reason why
// there was no connection before.
func over(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if errors.Is(last, cause) {
		return last
	}
	return fmt.Errorf("%w: %w", cause, last)
}

// final returns the error of Connect if no later attempt can succeed, and nil otherwise.
func final(qp *rdma.QP, err error) error {
	var rejected *rdma.RejectedError
	if errors.As(err, &rejected) {
		m, ok := parse(rejected.PrivateData)
		switch {
		case !ok:
			return fmt.Errorf("%w: %w", ErrForeign, err)
		case m.kind == mistaken:
			return ErrMistaken
		}
		return nil
	}
	for _, kind := range []error{rdma.ErrClosed, rdma.ErrConnected, rdma.ErrNotMPA, rdma.ErrMismatch, rdma.ErrNoPort} {
		if errors.Is(err, kind) {
			return err
		}
	}
	select {
	case <-qp.Done():
		return err
	default:
	}
	return nil
}
