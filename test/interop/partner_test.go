//go:build interop

package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/rdma"
)

// partner is the server of perftest's bandwidth tests of Writes and Reads, as a program
// with the verbs. Package perftest of the command describes the exchange.
type partner struct {
	ctx       context.Context
	a         *rdma.Adapter
	pd        *rdma.PD
	memory    *rdma.MR     // the memory that perftest writes and reads
	connected atomic.Int64 // number of connections
	reported  atomic.Bool  // perftest has sent its result
	ended     chan error   // receives the error of each connection that ends
	failed    atomic.Pointer[error]
}

// Lengths and offsets in octets of the messages on the control connection.
const (
	longestMessage       = 1024
	destLen, figureLen   = 56, 8
	destKey, destAddress = 16, 24
	partnerMemory        = 1 << 20
	partnerDepth         = 16
	partnerConnections   = 2 // the control connection, and one with data
)

// partner starts the server.
func (c *cards) partner() *partner {
	c.Helper()
	p := &partner{ctx: c.ctx, a: c.a, ended: make(chan error, partnerConnections)}
	var err error
	p.pd, err = c.a.AllocPD()
	c.Must(err)
	p.memory, err = p.pd.RegMR(make([]byte, partnerMemory), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	c.Must(err)
	l, err := c.a.Listen(c.ctx, fmt.Sprint(":", perftestPort), rdma.ListenConfig{})
	c.Must(err)
	c.Cleanup(func() { l.Close() })
	go func() {
		for n := range partnerConnections {
			if err := p.accept(l, n == 0); err != nil {
				p.end(err)
				return
			}
		}
	}()
	return p
}

// broken returns an error if a connection has ended.
func (p *partner) broken() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *partner) end(err error) {
	why := errors.New("perftest has disconnected")
	if err != nil {
		why = err
	}
	p.failed.CompareAndSwap(nil, &why)
	p.ended <- err
}

// accept accepts the next connection, and serves it on another goroutine.
func (p *partner) accept(l *rdma.Listener, control bool) error {
	request, err := l.Accept(p.ctx)
	if err != nil {
		return err
	}
	cq, err := p.a.CreateCQ(partnerDepth)
	if err != nil {
		return err
	}
	qp, err := p.pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	message, err := p.pd.RegMR(make([]byte, longestMessage), rdma.LocalWrite)
	if err != nil {
		return err
	}
	receive := rdma.RecvWR{SGL: []rdma.SGE{message.SGE(0, longestMessage)}}
	if _, err := qp.PostRecv(receive); err != nil {
		return err
	}
	if err := request.Accept(p.ctx, qp, rdma.ConnParams{}); err != nil {
		return err
	}
	p.connected.Add(1)
	go func() {
		var err error
		for control && err == nil {
			err = p.answer(qp, cq, message, receive)
		}
		select {
		case <-qp.Done():
			err = p.atEnd(qp.Err())
		case <-p.ctx.Done():
			err = p.ctx.Err()
		}
		p.end(errors.Join(err, qp.Close()))
	}()
	return nil
}

// atEnd returns the error of a connection that has ended. When the time of -D is over and
// the result is sent, perftest destroys its QP without waiting for its last Writes.
func (p *partner) atEnd(err error) error {
	if errors.Is(err, rdmap.ErrTruncated) && p.reported.Load() {
		return nil
	}
	return err
}

// errFlushed says that the connection has ended.
var errFlushed = errors.New("flushed")

// answer answers one message by the same message. In a Dest that is not all zero it puts
// its own memory.
func (p *partner) answer(qp *rdma.QP, cq *rdma.CQ, message *rdma.MR, receive rdma.RecvWR) error {
	for {
		c, err := cq.Next(p.ctx)
		switch {
		case err != nil:
			return err
		case c.Status != rdma.Success:
			return errFlushed
		case c.Op != rdma.WCRecv:
			continue
		}
		reply := append([]byte(nil), message.Bytes()[:c.Length]...)
		if len(reply) == destLen && binary.BigEndian.Uint64(reply[destAddress:]) != 0 {
			binary.BigEndian.PutUint32(reply[destKey:], uint32(p.memory.RKey()))
			binary.BigEndian.PutUint64(reply[destAddress:], p.memory.Addr())
		}
		if len(reply) == figureLen {
			p.reported.Store(true)
		}
		if _, err := qp.PostRecv(receive); err != nil {
			return err
		}
		_, err = qp.PostSend(rdma.SendWR{Op: rdma.WRSend, Inline: reply})
		return err
	}
}
