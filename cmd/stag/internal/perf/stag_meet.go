package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/stag-rdma/stag/rdma"
)

// meet makes all QPs, and connects them one after the other.
func (p *stagPeer) meet(ctx context.Context) error {
	if err := p.makeLanes(); err != nil {
		return err
	}
	if !p.run.serves() {
		for _, n := range p.notes {
			if err := n.dial(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	listener, err := p.run.adapter.Listen(ctx, p.run.at(), rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := p.run.printWaiting(listener.Addr().Port()); err != nil {
		return err
	}
	for _, n := range p.notes {
		if err := n.accept(ctx, listener); err != nil {
			return err
		}
	}
	return nil
}

// at returns the address at which the server listens.
func (s *runner) at() string { return net.JoinHostPort(s.Address, strconv.Itoa(int(s.Port))) }

// params returns parameters with room for the outstanding Reads.
func (n *notes) params(private []byte) rdma.ConnParams {
	p := rdma.ConnParams{PrivateData: private}
	if n.l.run.Test.op() == rdma.WRRead {
		p.IRD = min(n.l.run.txDepth(), mostReads)
		p.ORD = p.IRD
	}
	return p
}

// mostReads is the limit for outstanding Reads of a connection.
const mostReads = 128

func (n *notes) dial(ctx context.Context) error {
	private, err := n.hello()
	if err != nil {
		return err
	}
	if err := n.l.qp.Dial(ctx, n.l.run.at(), n.params(private)); err != nil {
		if no := new(rdma.RejectedError); errors.As(err, &no) {
			return refusal(no, n.l.run.terms())
		}
		return fmt.Errorf("call the server at %s: %w", n.l.run.at(), err)
	}
	h, err := parseHello(n.l.qp.Conn().PrivateData)
	if err != nil {
		return err
	}
	return n.agree(h)
}

// refusal returns an error with the server's reason for refusing the options of this end.
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

// accept waits for the connection of the client's next QP. If accept refuses the client, the server ends, because the
// user has started the server for this test only.
func (n *notes) accept(ctx context.Context, listener *rdma.Listener) error {
	r, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	private, err := n.hello()
	if err != nil {
		return err
	}
	h, err := parseHello(r.PrivateData())
	if err == nil {
		err = n.agree(h)
	}
	if err != nil {
		return errors.Join(err, r.Reject(private))
	}
	return r.Accept(ctx, n.l.qp, n.params(private))
}
