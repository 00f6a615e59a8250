package iscsi

import (
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/flow"
)

// sessionQueue is a queue of slots of a session: a part at each connection. It is used
// again when its owner has given it back: fire belongs to the present owner.
type sessionQueue struct {
	s     *Session
	parts []*flow.Queue // by connection
	depth int
	next  int // part that is polled first
	fire  atomic.Pointer[func()]
}

// takeQueue returns a queue of n slots of the session. fire runs when the queue is armed and
// gets a completion.
func (s *Session) takeQueue(n int, fire func()) (*sessionQueue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.spare {
		if q.depth == n {
			s.spare = append(s.spare[:i], s.spare[i+1:]...)
			q.fire.Store(&fire)
			return q, nil
		}
	}
	each := (n + len(s.conns) - 1) / len(s.conns)
	if left := s.slots() - s.next; n < 1 || each > left {
		return nil, fmt.Errorf("iscsi: a queue of depth %d: the session has %d of %d commands left: choose fewer, close a queue, or raise Config.Depth", n, left*len(s.conns), s.cfg.Depth)
	}
	q := &sessionQueue{s: s, depth: n}
	q.fire.Store(&fire)
	for _, c := range s.conns {
		part := c.flow.NewQueue(s.next, each)
		part.News().Fire = func() { (*q.fire.Load())() }
		q.parts = append(q.parts, part)
	}
	s.next += each
	return q, nil
}

// giveQueue takes back a queue without commands in flight.
func (s *Session) giveQueue(q *sessionQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = append(s.spare, q)
}

// Post posts a command: over the connection with the fewest commands of the queue. Several
// connections execute commands in any order.
func (q *sessionQueue) Post(c flow.Command) (int, error) {
	if len(q.parts) == 1 {
		return q.parts[0].Post(c)
	}
	if q.Room() == 0 {
		return 0, nil
	}
	best, room := 0, 0
	for i, p := range q.parts {
		if r := p.Room(); r > room {
			best, room = i, r
		}
	}
	n, err := q.parts[best].Post(c)
	if n != 0 {
		q.s.conns[best].posted.Store(true)
	}
	return n, err
}

// Depth returns how many commands can be posted and not polled.
func (q *sessionQueue) Depth() int { return q.depth }

// Room returns how many commands Post takes.
func (q *sessionQueue) Room() int {
	room := q.depth
	for _, p := range q.parts {
		room -= p.Depth() - p.Room()
	}
	return room
}

// Poll moves completions into dst, and returns their number.
func (q *sessionQueue) Poll(dst []flow.Completion) (n int) {
	if len(q.parts) == 1 {
		return q.parts[0].Poll(dst)
	}
	for range q.parts {
		n += q.parts[q.next].Poll(dst[n:])
		q.next = (q.next + 1) % len(q.parts)
	}
	return n
}

// Ready reports whether Poll would find a completion.
func (q *sessionQueue) Ready() bool {
	for _, p := range q.parts {
		if p.Ready() {
			return true
		}
	}
	return false
}

// Arm asks for fire at the next completion.
func (q *sessionQueue) Arm() {
	for _, p := range q.parts {
		p.Arm()
	}
}

// Cancel ends the commands of an ID that are in flight, and reports whether there are any.
func (q *sessionQueue) Cancel(id uint64) (found bool) {
	for _, p := range q.parts {
		found = p.Cancel(id) || found
	}
	return found
}
