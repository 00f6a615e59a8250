package daemon

import (
	"net"
	"sync"

	"github.com/stag-rdma/stag/rdma/proto"
)

// stream is a connection on which a client gets events. A goroutine writes them, so that
// nobody who has an event waits for the client.
type stream struct {
	client *client
	conn   *net.UnixConn
	async  bool // asynchronous events; otherwise events of the connection manager

	mu     sync.Mutex // guards the fields below; held briefly
	wake   *sync.Cond
	queue  []queued
	closed bool
	lost   uint64
}

type queued struct {
	m    *proto.Message
	sent *counter // counts the event when it has been sent; nil: nothing
}

// mostQueued is how many events a stream keeps for a client that does not read. Events of
// identifiers are limited by the quotas of identifiers, and are below that in any case.
const mostQueued = 1 << 16

// counter counts the events of an object that were sent.
type counter struct {
	mu sync.Mutex
	n  uint32
}

func (c *counter) add() {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
}

func (c *counter) count() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func newStream(c *client, conn *net.UnixConn, async bool) *stream {
	s := &stream{client: c, conn: conn, async: async}
	s.wake = sync.NewCond(&s.mu)
	return s
}

func (s *stream) kind() proto.Kind { return proto.KindEvents }

// close ends the stream. The client sees the end of the connection.
func (s *stream) close() error {
	s.mu.Lock()
	was := s.closed
	s.closed, s.queue = true, nil
	s.wake.Signal()
	s.mu.Unlock()
	if !was {
		s.conn.Close()
		s.client.account.give(ofStreams, 1)
	}
	return nil
}

// add queues an event. add does not block.
func (s *stream) add(m *proto.Message, sent *counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.queue) >= mostQueued {
		if s.lost++; s.lost == 1 {
			s.client.log.Warn("the client does not read its events: some are lost")
		}
		return
	}
	s.queue = append(s.queue, queued{m, sent})
	s.wake.Signal()
}

// take removes the events of a handle that have not been sent, and returns them in order.
func (s *stream) take(handle uint64) (taken []queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.queue[:0]
	for _, q := range s.queue {
		if concerns(q.m, handle) {
			taken = append(taken, q)
		} else {
			rest = append(rest, q)
		}
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	return taken
}

// concerns reports whether an event is one of the object of handle, or of its listener.
func concerns(m *proto.Message, handle uint64) bool {
	return m.Handle == handle || m.Op == proto.OpCMEvent && m.CMEvent().Listener == handle
}

// write sends the events. It returns when the stream is closed or the client is gone.
func (s *stream) write() {
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.wake.Wait()
		}
		if s.closed {
			s.mu.Unlock()
			return
		}
		q := s.queue[0]
		s.queue[0] = queued{}
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if q.sent != nil {
			q.sent.add() // before the client can have it
		}
		if _, err := s.conn.Write(q.m.Bytes()); err != nil {
			return
		}
	}
}

// watch reads until the client closes the stream. A client sends nothing on it.
func (s *stream) watch() {
	var m proto.Message
	n, fds, _, err := receive(s.conn, m.Bytes())
	closeAll(fds)
	if err == nil && n != 0 {
		s.client.complain.warn(s.client.log, "the client has sent something on a connection for events")
	}
}
