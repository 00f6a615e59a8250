package iscsi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
)

// wakeWatcher tells the session's goroutine that there is something to do. It runs after
// steps.
func (s *Session) wakeWatcher() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// watch starts the session's goroutine.
func (s *Session) watch() {
	stop := context.AfterFunc(s.device.Life(), func() {
		s.tell(func(now clock.Instant) {
			s.machine.Close(now)
			s.broken(now, ErrClosed)
		})
	})
	s.device.Go(func() {
		defer stop()
		s.run()
		s.drop()
		for _, c := range s.conns {
			c.flow.Finish()
		}
		s.device.Board().Deliver()
		for _, c := range s.conns {
			c.seen.remove()
		}
		s.free()
		close(s.done)
	})
	s.wakeWatcher()
}

// run handles events, time and answers until the session has ended.
func (s *Session) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !s.over {
		select {
		case <-s.news:
		case <-timer.C:
		case q := <-s.asked:
			q.run(clock.Now())
			close(q.done)
		}
		if !s.over {
			s.work(clock.Now())
		}
		timer.Reset(max(0, s.machine.Deadline().Sub(clock.Now())))
	}
}

// work does what the events and the time demand.
func (s *Session) work(now clock.Instant) {
	for _, c := range s.conns {
		c.takeEvents(now)
		c.sendAborts()
	}
	if over, why, cause := s.flowsOver(); over && s.linked {
		s.broken(now, endOf(why, cause))
	}
	s.machine.Alive(s.heard())
	s.machine.Tick(now)
	for id, c := range s.kept {
		if conn, slot := s.slotOf(id); conn.flow.Canceled(slot) {
			s.machine.Cancel(now, c)
		}
	}
	if s.linked && s.held && s.machine.Clean() {
		s.held = false
		for _, c := range s.conns {
			c.flow.Admit()
		}
		s.link().Wake()
	}
	if !s.linked {
		s.settle()
	}
}

// endOf returns the error of a connection that has ended.
func endOf(why flow.Reason, cause error) error {
	switch {
	case why != flow.OK:
		return why
	case cause != nil:
		return cause
	}
	return errors.New("the target has closed the connection")
}

// leave logs out because the program closes the session.
func (s *Session) leave(now clock.Instant) {
	s.leaving = true
	s.machine.Close(now)
}

// takeEvents handles what the target has sent on its own, and what was refused.
func (c *sessionConn) takeEvents(now clock.Instant) {
	var e flow.Event
	any := false
	for c.flow.TakeEvent(&e) {
		any = true
		c.handle(now, &e)
	}
	if any {
		c.wake() // the connection may have waited for room for events
	}
}

func (c *sessionConn) handle(now clock.Instant, e *flow.Event) {
	s, h := c.s, &e.Header
	switch {
	case e.Why == flow.Canceled:
		c.abort(h)
	case e.Why == flow.OK && h.Opcode() == pdu.OpAsync:
		s.machine.Async(now, h)
	case e.Why == flow.OK:
		s.cfg.Log.Warn("iscsi target rejects a PDU", "target", s.url.Target, "reason", fmt.Sprintf("%#02x", uint8(h.RejectReason())))
	default:
		s.cfg.Log.Warn("iscsi PDU refused", "target", s.url.Target, "pdu", h.Opcode(), "why", e.Why)
		if h.Opcode() == pdu.OpR2T { // the command would wait for its data for ever
			s.broken(now, fmt.Errorf("the target sent an R2T that was refused: %w", e.Why))
		}
	}
}
