package iscsi

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	isession "github.com/stag-rdma/stag/iscsi/session"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// sessionConn is one of a session's connections at a time: the commands that are bound to
// it (connection allegiance, RFC 7143 §4.2.2.2), with entries and slots of their own. When
// the connection ends, the next one takes its place.
type sessionConn struct {
	s      *Session
	cid    uint16
	tags   *tpt.Tags
	flow   *flow.Initiator
	calls  calls
	manage calls // pings, aborts, logout, and the check of the units

	conn   atomic.Pointer[link] // the youngest connection
	owing  atomic.Bool          // there are requests in aborts
	aborts []pdu.Header         // requests that wait for room; the session's goroutine has them
	posted atomic.Bool          // commands were posted of which the connection does not know
	seen   *lookout             // for reports
	params login.Params         // of the last login; Session.mu guards it
}

// link returns the youngest connection.
func (c *sessionConn) link() link { return *c.conn.Load() }

// wake wakes the connection, if there was one.
func (c *sessionConn) wake() {
	if l := c.conn.Load(); l != nil {
		(*l).Wake()
	}
}

// slots returns how many slots each connection of the session has.
func (s *Session) slots() int { return callSlots + controlSlots + s.cfg.Depth }

// equip makes the machines of the session's n connections.
func (s *Session) equip(socks []*socket) {
	if len(socks) > 1 {
		s.numbers = flow.NewNumbers(s.device.Board())
		s.numbers.Opened.Fire = s.wake
	}
	for i, c := range s.conns {
		c.flow = flow.NewInitiator(flow.Config{Params: socks[i].params, Tags: c.tags, Board: s.device.Board(), Numbers: s.numbers, Keep: true})
		c.flow.News.Fire = s.wakeWatcher
		c.init()
		c.seen = &lookout{role: report.Initiator, depth: s.cfg.Depth + callSlots, began: time.Now(), state: isession.Login.String(), look: c.flow.Look, describe: c.describe}
		if i == 0 {
			c.seen.disks = s.units
		}
		reportsOf(s.device).add(c.seen)
	}
	if len(s.conns) > 1 {
		s.bundle = bundle{s}
	}
	s.begins(socks)
}

// begins sets the numbers of commands after the leading login.
func (s *Session) begins(socks []*socket) {
	if s.numbers != nil {
		p := &socks[0].params
		s.numbers.Begin(p.CmdSN, p.MaxCmdSN)
	}
}

// lead returns the leading connection. It carries what concerns the whole session.
func (s *Session) lead() *sessionConn { return s.conns[0] }

// calling returns the connection with the fewest calls in flight.
func (s *Session) calling() *calls {
	best := s.conns[0]
	if s.bundle == nil {
		return &best.calls
	}
	from := int(s.turn.Add(1))
	for i := range s.conns {
		c := s.conns[(from+i)%len(s.conns)]
		if i == 0 || len(c.calls.room) < len(best.calls.room) {
			best = c
		}
	}
	return &best.calls
}

// bundle is the connections of a session that has several, as one. Goroutines of the
// connections do their work, because a program's goroutine can wait for arrivals of one only.
type bundle struct{ s *Session }

// Wake implements link.
func (b bundle) Wake() {
	for _, c := range b.s.conns {
		c.wake()
	}
}

// Post implements link.
func (b bundle) Post(bool) {
	for _, c := range b.s.conns {
		if c.posted.Swap(false) {
			c.link().Post(false)
		}
	}
}

// Runner implements link.
func (b bundle) Runner() adapter.Runner { return nil }

// Device implements link.
func (b bundle) Device() string { return b.s.lead().link().Device() }

// over returns how a connection has ended of those that the session has, if one has.
func (s *Session) flowsOver() (over bool, why flow.Reason, cause error) {
	for _, c := range s.conns {
		if over, why, cause = c.flow.Over(); over {
			return over, why, cause
		}
	}
	return false, flow.OK, nil
}

// heard returns when all connections have heard of the target.
func (s *Session) heard() clock.Instant {
	at := s.conns[0].flow.Heard()
	for _, c := range s.conns[1:] {
		at = min(at, c.flow.Heard())
	}
	return at
}

// hangUp ends the connections, and waits until no step runs.
func (s *Session) hangUp() {
	for _, c := range s.conns {
		c.flow.Abort()
		c.wake()
	}
	s.wakeWatcher()
	for _, c := range s.conns {
		for over, _, _ := c.flow.Over(); !over; over, _, _ = c.flow.Over() {
			<-s.news
		}
	}
}
