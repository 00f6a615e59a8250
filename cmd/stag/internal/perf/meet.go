package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/stag-rdma/stag/rdma"
)

// meet connects all QPs, one after the other.
func (s *session) meet(ctx context.Context) error {
	if !s.serves() {
		for _, l := range s.lanes {
			if err := l.dial(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	listener, err := s.adapter.Listen(ctx, s.at(), rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := s.printWaiting(listener.Addr().Port()); err != nil {
		return err
	}
	for _, l := range s.lanes {
		if err := l.accept(ctx, listener); err != nil {
			return err
		}
	}
	return nil
}

// at is where the server listens.
func (s *session) at() string { return net.JoinHostPort(s.Address, strconv.Itoa(int(s.Port))) }

// params has room for the Reads that are to be under way.
func (l *lane) params(private []byte) rdma.ConnParams {
	p := rdma.ConnParams{PrivateData: private}
	if l.Test.op() == rdma.WRRead {
		p.IRD = min(l.txDepth(), mostReads)
		p.ORD = p.IRD
	}
	return p
}

// mostReads is how many Reads a connection can have under way.
const mostReads = 128

func (l *lane) dial(ctx context.Context) error {
	private, err := l.hello()
	if err != nil {
		return err
	}
	if err := l.qp.Dial(ctx, l.at(), l.params(private)); err != nil {
		if no := new(rdma.RejectedError); errors.As(err, &no) {
			return refusal(no, l.terms())
		}
		return fmt.Errorf("call the server at %s: %w", l.at(), err)
	}
	h, err := parseHello(l.qp.Conn().PrivateData)
	if err != nil {
		return err
	}
	return l.agree(h)
}

// refusal is why the server does not want us: it says what it was given.
func refusal(no *rdma.RejectedError, mine terms) error {
	h, err := parseHello(no.PrivateData)
	if err != nil {
		return err
	}
	if err := mine.differs(h.Terms); err != nil {
		return err
	}
	return errors.New("the server has another client: try again when it is done")
}

// accept waits for the client's next QP. What it refuses is the end: it was
// started for this test only.
func (l *lane) accept(ctx context.Context, listener *rdma.Listener) error {
	r, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	private, err := l.hello()
	if err != nil {
		return err
	}
	h, err := parseHello(r.PrivateData())
	if err == nil {
		err = l.agree(h)
	}
	if err != nil {
		return errors.Join(err, r.Reject(private))
	}
	return r.Accept(ctx, l.qp, l.params(private))
}
