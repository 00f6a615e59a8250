package daemon

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// disconnectLimit is how long a connection may take to end in good order.
const disconnectLimit = 5 * time.Second

// partLimit is how long the destruction of a QP that is connected by number waits for the other
// end.
const partLimit = 500 * time.Millisecond

// disconnect is OpDisconnect.
func (c *client) disconnect(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	was, q := i.stage, i.qp
	switch was {
	case connected:
		defer i.mu.Unlock()
		if err := q.leave(); err != nil {
			return reply{}, err
		}
		i.part()
		return reply{}, nil
	case disconnected:
		i.part()
		i.mu.Unlock()
		if q != nil {
			q.qp.Fail() // flushes the receives that have outlasted the peer
		}
		return reply{}, nil
	default:
		defer i.mu.Unlock()
		return reply{}, i.wrongStage("disconnect")
	}
}

// leave begins to end the connection in good order, if that has not begun.
func (q *qp) leave() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leaving != nil {
		return nil
	}
	c, leaving := q.client, make(chan struct{})
	err := c.run(func() {
		defer close(leaving)
		ctx, cancel := context.WithTimeout(c.life, disconnectLimit)
		defer cancel()
		if q.qp.Disconnect(ctx) != nil {
			q.qp.Abort()
		}
	})
	if err == nil {
		q.leaving = leaving
	}
	return err
}

// part lets a connection end in good order, before the QP is destroyed. A program may destroy its
// QP as soon as it has called rdma_disconnect, and adapters still deliver what it has sent. With a
// connection by number, InfiniBand does not tell the other end, which may still wait for its
// completions. A reset would flush them.
func (q *qp) part(life context.Context) {
	q.mu.Lock()
	leaving := q.leaving
	orderly := q.numbered && q.qp.State() == rdma.RTS
	q.mu.Unlock()
	if leaving != nil {
		select {
		case <-leaving:
		case <-life.Done():
		}
		return
	}
	if !orderly {
		return
	}
	ctx, cancel := context.WithTimeout(life, partLimit)
	defer cancel()
	if err := q.qp.Disconnect(ctx); err != nil {
		q.client.log.Debug("the other end has not closed", "qp", q.qp.Number(), "err", err)
	}
}

// part notes that the client wants no more of the connection. part reports whether the client
// had wanted more. The caller must hold i.mu.
func (i *id) part() (first bool) {
	select {
	case <-i.parted:
		return false
	default:
		close(i.parted)
		return true
	}
}

// follow waits for the end of the connection, tells the client, and flushes the receives. If the
// client has disconnected, the receives are flushed before the client is told. If the peer has,
// they stay posted until the client has parted too, or for Config.FlushDelay. With InfiniBand
// they stay until the program disconnects. Programs for InfiniBand take an earlier flush for an
// error. Programs for iWARP may learn of the end by the flush alone, so it must come.
func (i *id) follow(q *qp) {
	c := i.client
	select {
	case <-q.qp.Done():
	case <-c.life.Done():
		return
	}
	i.mu.Lock()
	if i.stage == connected {
		i.stage = disconnected
	}
	i.mu.Unlock()
	status := int32(0)
	if q.qp.Err() != nil {
		status = -int32(unix.ECONNRESET)
	}
	select {
	case <-i.parted:
		q.qp.Fail()
		i.ended(status)
	default:
		i.ended(status)
		i.linger()
		q.qp.Fail()
	}
}

// ended tells the client that the connection has ended.
func (i *id) ended(status int32) {
	i.event(cmDisconnected, status, nil)
	if i.client.style == proto.PersonalityRoCE { // iWARP devices of Linux have no such event
		i.event(cmTimewaitExit, 0, nil)
	}
}

// linger waits until the client has parted, or until Config.FlushDelay is over.
func (i *id) linger() {
	delay := time.NewTimer(i.client.daemon.cfg.FlushDelay)
	defer delay.Stop()
	select {
	case <-i.parted:
	case <-delay.C:
	case <-i.client.life.Done():
	}
}
