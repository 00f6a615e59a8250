package session

import (
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
)

// Async takes an asynchronous message of the target (RFC 7143 §11.9.1).
func (s *Session) Async(now clock.Instant, h *pdu.Header) {
	if s.state != Up {
		return
	}
	p1, p2, p3 := h.Parameters()
	switch h.Event() {
	case pdu.EventLogout:
		s.renew(now, time.Duration(p3)*time.Second)
	case pdu.EventNegotiate: // a new login negotiates everything anew
		s.renew(now, time.Duration(p3)*time.Second)
	case pdu.EventDropConnection:
		if p1 == s.params.CID || int(p1) < s.config.Connections { // level 0: the session ends with any
			s.broken(now, ErrDropped, time.Duration(p2)*time.Second)
		}
	case pdu.EventDropSession:
		s.broken(now, ErrDropped, time.Duration(p2)*time.Second)
	case pdu.EventTasksEnded:
		s.mover.Acknowledge(h.LUN(), s.window.Next())
	default:
		s.owner.Notice(h)
	}
}

// renew logs out, so that a new login follows. Nothing may be sent after a logout, so
// waiting commands wait for the login.
func (s *Session) renew(now clock.Instant, limit time.Duration) {
	if s.leaving == staying {
		s.leave(now, toRenew, min(max(limit, time.Second), s.config.ManageTimeout))
	}
}

func (s *Session) leave(now clock.Instant, why leaving, limit time.Duration) {
	s.leaving, s.leaveBy = why, now.Add(limit)
	s.mover.Logout(s.window.Next())
}

// LoggedOut says that the target has answered the logout, and how long it wants to wait
// before the next login. The target has ended the commands that had no status.
func (s *Session) LoggedOut(now clock.Instant, wait time.Duration) {
	switch {
	case s.state != Up || s.leaving == staying:
	case s.leaving == toClose:
		s.mover.Drop()
		s.finish(evClosed, ErrClosed)
	default:
		s.broken(now, ErrDropped, wait)
	}
}

// Close ends the session: by a logout if it is up, else at once. Commands that have no
// status complete with SessionLost.
func (s *Session) Close(now clock.Instant) {
	switch {
	case s.state == Up && s.leaving == staying:
		s.leave(now, toClose, s.config.ManageTimeout)
	case s.state == Up:
		s.leaving = toClose // a logout is already under way
	case s.state == Login:
		s.mover.Drop()
		s.finish(evClosed, ErrClosed)
	case s.state != Down:
		s.finish(evClosed, ErrClosed)
	}
}
