package session

import (
	"errors"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
)

// Broken says that the connection has ended or cannot be used any more: the end of the
// stream, a fault of the protocol, a port that is gone.
func (s *Session) Broken(now clock.Instant, cause error) {
	s.broken(now, cause, time.Duration(s.params.Time2Wait)*time.Second)
}

// broken holds the session. The target asks for a wait before the next login.
func (s *Session) broken(now clock.Instant, cause error, wait time.Duration) {
	if s.state != Up {
		return
	}
	s.mover.Drop()
	if s.leaving == toClose {
		s.finish(evClosed, ErrClosed)
		return
	}
	s.requeue()
	s.manage.abandon(s.owner)
	s.hold(now, cause, wait)
}

// hold goes to Held and sets the time of the next login.
func (s *Session) hold(now clock.Instant, cause error, wait time.Duration) {
	if s.lostAt == clock.Never {
		s.lostAt = now.Add(s.config.RecoveryTimeout)
	}
	s.retryAt = now.Add(max(wait, s.backOff()))
	s.attempts++
	s.move(evBroken, cause)
}

// backOff doubles with each attempt since there was progress.
func (s *Session) backOff() time.Duration {
	d := s.config.MinBackOff
	for range s.attempts {
		if d *= 2; d >= s.config.MaxBackOff {
			return s.config.MaxBackOff
		}
	}
	return min(d, s.config.MaxBackOff)
}

// requeue decides about the commands that the lost connection had. Those that may be
// executed twice go to the front of those that wait, in their old order.
func (s *Session) requeue() {
	again := taskList{}
	for c := s.sent.head; c != nil; {
		next := c.next
		c.remove()
		if !c.Ended && Changes(&c.CDB) {
			s.dirty.add(c.LUN)
		}
		switch {
		case c.state == aborting:
			c.state = unknown
		case c.Once || !Repeatable(&c.CDB) || c.replays == MaxReplays:
			c.state = unknown
			s.owner.Completed(c, Uncertain)
		default:
			c.state = waiting
			c.replays++
			again.add(c)
		}
		c = next
	}
	s.waiting.prepend(&again)
}

// Failed says that a login has failed, or that the login has succeeded and the units are
// not there yet. The first login of a session is not repeated.
func (s *Session) Failed(now clock.Instant, cause error) {
	switch {
	case s.state != Login:
	case hopeless(cause) || !s.proven || s.lostAt.Due(now):
		s.finish(evGivenUp, cause)
	default:
		s.hold(now, cause, 0)
	}
}

// hopeless reports whether another login has no better chance: this end has refused the
// target, or the target's status has class 2. A target that restarts opens its portal
// before it has its names and its access rules, so two statuses of class 2 are not final.
func hopeless(cause error) bool {
	var refused *login.Refused
	if !errors.As(cause, &refused) {
		return false
	}
	switch refused.Status {
	case pdu.TargetNotFound, pdu.AuthorizationFailure:
		return !refused.ByPeer
	}
	return !refused.ByPeer || refused.Status.Class() == classInitiator
}

// classInitiator is the status class of errors of the initiator.
const classInitiator = 2

// Mismatch says that the target of the new login is not the old one: another unit has the
// number, or the unit has another size. The session is lost.
func (s *Session) Mismatch(cause error) {
	if s.state == Login {
		s.mover.Drop()
		s.finish(evGivenUp, cause)
	}
}

// finish ends the session and completes all commands.
func (s *Session) finish(e event, cause error) {
	for _, l := range []*taskList{&s.sent, &s.waiting} {
		for c := l.head; c != nil; c = l.head {
			if c.state == aborting {
				s.forget(c)
			} else {
				s.end(c, SessionLost)
			}
		}
	}
	s.manage.abandon(s.owner)
	s.dirty, s.leaving = nil, staying
	s.move(e, cause)
}

// resetDirty resets each unit that may execute commands of the old connection. The target
// ends them, because a target that does not end the old session by itself exists.
func (s *Session) resetDirty(now clock.Instant) {
	for _, lun := range s.dirty {
		s.manage.add(request{function: resetUnit, lun: lun, own: true})
	}
	s.nextManage(now)
}

// Tick does what the time demands.
func (s *Session) Tick(now clock.Instant) {
	switch s.state {
	case Held:
		switch {
		case s.lostAt.Due(now):
			s.finish(evGivenUp, s.cause)
		case s.retryAt.Due(now):
			s.move(evRetry, s.cause)
			s.mover.Connect()
		}
	case Login:
		if s.lostAt.Due(now) {
			s.mover.Drop()
			s.finish(evGivenUp, ErrSilent)
		}
	case Up:
		switch {
		case s.leaving != staying && s.leaveBy.Due(now):
			s.Broken(now, ErrSilent)
		case s.manage.due(now):
			s.Broken(now, ErrSilent)
		default:
			s.keepAlive(now)
		}
	}
}

// keepAlive pings a silent target. Any PDU is a sign of life, because data in front of the
// answer may take long.
func (s *Session) keepAlive(now clock.Instant) {
	if s.pinged != clock.Never && s.heard >= s.pinged {
		s.pinged = clock.Never
	}
	switch {
	case s.pinged != clock.Never && s.pinged.Add(s.config.PingTimeout).Due(now):
		s.Broken(now, ErrSilent)
	case s.pinged == clock.Never && s.heard.Add(s.config.Ping).Due(now):
		s.pinged = now
		s.mover.Ping(s.window.Next())
	}
}

// Deadline returns when the owner calls Tick at the latest, or Never.
func (s *Session) Deadline() clock.Instant {
	switch s.state {
	case Held:
		return clock.Sooner(s.retryAt, s.lostAt)
	case Login:
		return s.lostAt
	case Up:
		d := s.heard.Add(s.config.Ping)
		if s.pinged != clock.Never && s.heard < s.pinged {
			d = s.pinged.Add(s.config.PingTimeout)
		}
		if s.leaving != staying {
			d = clock.Sooner(d, s.leaveBy)
		}
		return clock.Sooner(d, s.manage.by)
	}
	return clock.Never
}
