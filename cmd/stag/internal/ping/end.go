package ping

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/stag-rdma/stag/offload/undo"
	"github.com/stag-rdma/stag/rdma"
)

// end is one end of a connection. Only one goroutine uses it.
type end struct {
	pd    *rdma.PD
	cq    *rdma.CQ
	qp    *rdma.QP
	inbox *rdma.MR // memory for the one message that can be outstanding
	debug io.Writer
	undo  undo.Stack
}

// depth is the size of the queues. It is larger than the number of requests that are outstanding at a time.
const depth = 8

// errLeft means that the peer has closed the connection normally.
var errLeft = errors.New("the peer has closed the connection")

// newEnd makes an end that can be connected, and posts its first receive.
func newEnd(a *rdma.Adapter, debug io.Writer) (_ *end, err error) {
	e := &end{debug: debug}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{OneCQ: true, Size: infoLen, QP: rdma.QPConfig{SendDepth: depth, RecvDepth: depth}})
	if err != nil {
		return nil, err
	}
	e.closes(ep.Close)
	e.pd, e.cq, e.qp, e.inbox = ep.PD, ep.SendCQ, ep.QP, ep.MR
	return e, e.listen()
}

func (e *end) closes(f func() error) { e.undo.Add(f) }

func (e *end) close() error {
	return e.undo.Run()
}

func (e *end) memory(octets int, access rdma.Access) (*rdma.MR, error) {
	mr, err := e.pd.AllocMR(octets, access)
	if err == nil {
		e.closes(mr.Close)
	}
	return mr, err
}

// listen posts a receive for the next message.
func (e *end) listen() error {
	_, err := e.qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{e.inbox.SGE(0, infoLen)}})
	return err
}

// message returns the work request that sends i.
func message(i info) rdma.SendWR {
	return rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: i.append(make([]byte, 0, infoLen))}
}

// post posts work requests. The last one is signaled.
func (e *end) post(wrs ...rdma.SendWR) error {
	_, err := e.qp.PostSend(wrs...)
	return err
}

// hear waits for the peer's next message, and posts a receive for the one after it.
func (e *end) hear(ctx context.Context) (info, error) {
	c, err := e.await(ctx, rdma.WCRecv)
	if err != nil {
		return info{}, err
	}
	i, err := parseInfo(e.inbox.Bytes()[:c.Length])
	if err != nil {
		return info{}, err
	}
	return i, e.listen()
}

// await waits for a completion of operation op. It skips completions of Sends that
// arrive before.
func (e *end) await(ctx context.Context, op rdma.WCOp) (rdma.Completion, error) {
	for {
		c, err := e.cq.Next(ctx)
		switch {
		case err != nil:
			return c, err
		case c.Status != rdma.Success:
			return c, e.failed(ctx, &c)
		case c.Op == op:
			return c, nil
		case c.Op != rdma.WCSend:
			return c, fmt.Errorf("%v completed instead of %v: the peer does not follow the order of rping", c.Op, op)
		}
	}
}

// failed returns an error with the operation and the status of c, and with the error of the connection, which says
// more than the status.
func (e *end) failed(ctx context.Context, c *rdma.Completion) error {
	select {
	case <-e.qp.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := e.qp.Err(); err != nil {
		return fmt.Errorf("%v: %v: %w", c.Op, c.Status, err)
	}
	return errLeft
}

// disconnect closes the connection normally, also after an interrupt.
func (e *end) disconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errDeaf)
	defer cancel()
	return e.qp.Disconnect(ctx)
}

// step prints a step of the exchange, if Options.Debug is set.
func (e *end) step(format string, args ...any) {
	if e.debug != nil {
		fmt.Fprintf(e.debug, format+"\n", args...)
	}
}
