package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perftest"
	"github.com/stag-rdma/stag/rdma"
)

// control is the connection over which the two ends of a test with perftest exchange parameters. The ends send
// messages in turn, so at most one message is outstanding. Only one goroutine at a time uses a control.
type control struct {
	cq    *rdma.CQ
	qp    *rdma.QP
	inbox *rdma.MR

	heard []byte // message that arrived before hear was called; nil: none
}

// controlDepth is the size of the queues. It is larger than the number of requests that are outstanding at a time.
const controlDepth = 4

// newControl makes an end of a control connection, and posts its first receive.
func newControl(a *rdma.Adapter) (*control, error) {
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: perftest.MaxLen,
		QP: rdma.QPConfig{SendDepth: controlDepth, RecvDepth: controlDepth, MaxSGE: 1, MaxInline: perftest.LongDest},
	})
	if err != nil {
		return nil, err
	}
	c := &control{cq: ep.SendCQ, qp: ep.QP, inbox: ep.MR}
	return c, c.listen()
}

// listen posts a receive for the next message.
func (c *control) listen() error {
	_, err := c.qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{c.inbox.SGE(0, perftest.MaxLen)}})
	return err
}

// say sends a message.
func (c *control) say(b []byte) error {
	_, err := c.qp.PostSend(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: b})
	return err
}

// hear waits for the peer's next message. Before it returns, it posts the receive for the following message, because
// the peer may send that message as soon as this end has answered.
func (c *control) hear(ctx context.Context) ([]byte, error) {
	if err := c.overhear(ctx); err != nil {
		return nil, err
	}
	b := c.heard
	c.heard = nil
	return b, nil
}

// overhear waits until a message has arrived. It also takes the completions of earlier Sends.
func (c *control) overhear(ctx context.Context) error {
	for c.heard == nil {
		got, err := c.cq.Next(ctx)
		switch {
		case err != nil:
			return err
		case got.Status != rdma.Success:
			return c.failed(ctx)
		case got.Op == rdma.WCRecv:
			c.heard = append([]byte{}, c.inbox.Bytes()[:got.Length]...)
			if err := c.listen(); err != nil {
				return err
			}
		}
	}
	return nil
}

var errLeft = errors.New("the peer has left in the middle of the test: look at its output; was it given the same test and the same options?")

// failed returns why the connection ended.
func (c *control) failed(ctx context.Context) error {
	select {
	case <-c.qp.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.qp.Err(); err != nil {
		return fmt.Errorf("%w (%w)", errLeft, err)
	}
	return errLeft
}

// dials is how often dial tries to open a data connection, and dialAgain is the pause between two attempts. More than
// one attempt is needed, because the server starts to listen only a moment after it has told the client to connect.
const (
	dials     = 50
	dialAgain = 100 * time.Millisecond
)

// dial connects qp to the server. It tries the control connection only once, and data connections several times.
func (p *perftestPeer) dial(ctx context.Context, qp *rdma.QP, params rdma.ConnParams) error {
	tries := dials
	if qp == p.control.qp {
		tries = 1
	}
	for {
		err := qp.Dial(ctx, p.run.at(), params)
		tries--
		switch no := new(rdma.RejectedError); {
		case err == nil:
			return nil
		case errors.As(err, &no) && bytes.Contains(no.PrivateData, []byte("stag_perf")):
			return errors.New("the server is stag perf, and was not given --perftest")
		case tries == 0 || !errors.Is(err, syscall.ECONNREFUSED):
			return fmt.Errorf("call the server at %s: %w", p.run.at(), err)
		}
		select {
		case <-time.After(dialAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
