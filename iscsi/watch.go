package iscsi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// errSilent ends a session whose target does not answer a ping.
var errSilent = errors.New("the target does not answer")

// wakeWatcher tells the watcher that there are events. It runs after steps.
func (s *Session) wakeWatcher() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// watch starts the goroutine that handles events, pings, and the end of the session.
func (s *Session) watch() {
	stop := context.AfterFunc(s.device.Life(), func() { s.fail(ErrClosed) })
	s.device.Go(func() {
		defer stop()
		s.run()
		s.release()
		close(s.done)
	})
	s.wakeWatcher()
}

// run handles events until the connection has ended.
func (s *Session) run() {
	timer := time.NewTicker(s.cfg.Ping)
	defer timer.Stop()
	var ping *call
	for {
		select {
		case <-s.news:
		case <-timer.C:
			if ping != nil && len(ping.done) == 0 {
				s.fail(fmt.Errorf("%w within %v", errSilent, s.cfg.Ping))
			}
			ping = s.ping()
		}
		s.takeEvents()
		if over, why, cause := s.flow.Over(); over {
			s.cfg.Log.Info("iscsi session ended", "target", s.url.Target, "why", why, "err", cause)
			return
		}
	}
}

// try posts a request if there is room, and nobody waits for the answer.
func (s *Session) try(h *pdu.Header) *call {
	select {
	case s.manage.room <- struct{}{}:
	default:
		return nil
	}
	x, err := s.manage.post(flow.Command{Request: h})
	if err != nil { // the connection has ended, which the caller will see
		return nil
	}
	return x
}

// ping asks whether the target is there.
func (s *Session) ping() *call {
	var h pdu.Header
	h.Reset(pdu.OpNOPOut)
	h.SetImmediate(true)
	h.SetFlags(pdu.Final)
	h.SetTargetTransferTag(pdu.NoTag)
	return s.try(&h)
}

// takeEvents handles what the target has sent on its own, and what was refused.
func (s *Session) takeEvents() {
	var e flow.Event
	any := false
	for s.flow.TakeEvent(&e) {
		any = true
		s.handle(&e)
	}
	if any {
		s.conn.Wake() // the connection may have waited for room for events
	}
}

func (s *Session) handle(e *flow.Event) {
	h := &e.Header
	switch {
	case e.Why == flow.Canceled:
		s.try(h)
	case e.Why == flow.OK && h.Opcode() == pdu.OpAsync:
		s.async(h)
	case e.Why == flow.OK:
		s.cfg.Log.Warn("iscsi target rejects a PDU", "target", s.url.Target, "reason", fmt.Sprintf("%#02x", uint8(h.RejectReason())))
	default:
		s.cfg.Log.Warn("iscsi PDU refused", "target", s.url.Target, "pdu", h.Opcode(), "why", e.Why)
		if h.Opcode() == pdu.OpR2T { // the command would wait for its data for ever
			s.fail(fmt.Errorf("the target sent an R2T that was refused: %w", e.Why))
		}
	}
}

// async follows an Asynchronous Message (RFC 7143 §11.9.1).
func (s *Session) async(h *pdu.Header) {
	s.cfg.Log.Info("iscsi asynchronous message", "target", s.url.Target, "event", uint8(h.Event()))
	switch h.Event() {
	case pdu.EventLogout:
		var l pdu.Header
		l.Reset(pdu.OpLogout)
		l.SetImmediate(true)
		l.SetLogoutReason(pdu.CloseSession)
		s.try(&l)
	case pdu.EventDropConnection, pdu.EventDropSession:
		s.fail(errors.New("the target drops the session"))
	}
}
