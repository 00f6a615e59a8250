package session

import (
	"errors"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// Config is the configuration of a session. The zero Config works.
type Config struct {
	Ping            time.Duration // silence of the target before a ping; 0 means 5 s
	PingTimeout     time.Duration // silence after a ping before the connection is given up; 0 means 5 s
	ManageTimeout   time.Duration // for an answer to a task management request or a logout; 0 means 15 s
	RecoveryTimeout time.Duration // from a loss until the session is lost; 0 means 120 s
	MinBackOff      time.Duration // wait before the first attempt after a loss; 0 means 100 ms
	MaxBackOff      time.Duration // longest wait between attempts; 0 means 5 s
	Connections     int           // of the session, with CIDs from 0 on; 0 means 1
}

// fill sets the defaults. open-iscsi has the same ones.
func (c *Config) fill() {
	for _, d := range []struct {
		d   *time.Duration
		def time.Duration
	}{
		{&c.Ping, 5 * time.Second}, {&c.PingTimeout, 5 * time.Second}, {&c.ManageTimeout, 15 * time.Second},
		{&c.RecoveryTimeout, 120 * time.Second}, {&c.MinBackOff, 100 * time.Millisecond}, {&c.MaxBackOff, 5 * time.Second},
	} {
		if *d.d <= 0 {
			*d.d = d.def
		}
	}
}

// Errors of a session, and causes of its states.
var (
	ErrEnded   = errors.New("iscsi session: the session is down or lost")
	ErrInUse   = errors.New("iscsi session: the command is in use")
	ErrSilent  = errors.New("iscsi session: the target does not answer")
	ErrDropped = errors.New("iscsi session: the target ends the connection")
	ErrClosed  = errors.New("iscsi session: the session was closed")
)

// Session is the machine.
type Session struct {
	config Config
	mover  Mover
	owner  Owner

	state  State
	proven bool // the session was up once
	cause  error
	window Window
	params login.Params

	waiting taskList // in the order of submission, those to send again first
	sent    taskList // in the order of their numbers; aborting ones too
	dirty   units    // units that need a reset, because the target may execute commands late
	manage  manager

	heard    clock.Instant // time of the last PDU of the target
	pinged   clock.Instant // time of the ping without an answer; Never: there is none
	retryAt  clock.Instant // in Held
	lostAt   clock.Instant // when the session is lost, unless it makes progress; Never: it is
	attempts int           // logins since there was progress
	leaving  leaving
	leaveBy  clock.Instant // when the logout must be answered
}

// leaving is why a logout is under way.
type leaving uint8

const (
	staying leaving = iota
	toClose         // the owner ends the session
	toRenew         // the target wants a new login
)

// New makes a session that is down.
func New(c Config, m Mover, o Owner) *Session {
	c.fill()
	return &Session{config: c, mover: m, owner: o}
}

// State returns the state, and for Held and Lost the cause.
func (s *Session) State() (State, error) { return s.state, s.cause }

// Params returns the parameters of the last login.
func (s *Session) Params() login.Params { return s.params }

// Len returns how many commands have not completed or are known to the target.
func (s *Session) Len() int { return s.waiting.len + s.sent.len }

// Live reports whether the machine still holds a command.
func (s *Session) Live(c *Command) bool { return c.state != unknown }

// move performs an event of the life cycle, and reports whether the state permits it.
func (s *Session) move(e event, cause error) bool {
	to, permitted := s.state.next(e)
	if !permitted {
		return false
	}
	s.state, s.cause = to, cause
	s.owner.Changed(to, cause)
	return true
}

// Open starts the first login.
func (s *Session) Open(now clock.Instant) {
	if s.move(evOpen, nil) {
		s.proven, s.attempts, s.lostAt = false, 0, clock.Never
		s.mover.Connect()
	}
}

// Connected says that a login has succeeded. The caller has made sure that the units
// behind it are the same as before.
func (s *Session) Connected(now clock.Instant, p login.Params) {
	if !s.move(evUp, nil) {
		return
	}
	s.proven, s.params = true, p
	s.window = NewWindow(p.CmdSN, p.MaxCmdSN)
	s.heard, s.pinged, s.leaving = now, clock.Never, staying
	s.resetDirty(now)
	s.pump()
}

// Submit sends a command, or keeps it until the connection and the command window permit.
// Errors: ErrEnded, ErrInUse.
func (s *Session) Submit(c *Command) error {
	switch {
	case s.state == Down || s.state == Lost || s.leaving == toClose:
		return ErrEnded
	case c.state != unknown:
		return ErrInUse
	}
	c.state, c.replays, c.adopted = waiting, 0, false
	s.waiting.add(c)
	s.pump()
	return nil
}

// Adopt hands a command over that the mover had sent without the machine, and that has no
// status. The mover calls it within Drop, in the order of the commands' numbers. The
// command is replayed or completed as one of Submit. When the machine sends it, the command
// is the mover's again, and the mover orders it in the command window. replays is how often
// the machine has sent it before.
func (s *Session) Adopt(c *Command, replays uint8) {
	c.state, c.replays, c.adopted = sent, replays, true
	s.sent.add(c)
}

// Clean reports whether no unit is being reset: the mover may send commands of its own.
func (s *Session) Clean() bool { return s.state == Up && s.leaving == staying && len(s.dirty) == 0 }

// pump sends waiting commands in order. Commands to a unit that is being reset wait. They
// do not hold up commands to other units.
func (s *Session) pump() {
	if s.state != Up || s.leaving != staying {
		return
	}
	for c := s.waiting.head; c != nil; {
		next := c.next
		switch {
		case !c.adopted && s.window.Open() == 0:
			return // adopted commands are in front
		case s.dirty.has(c.LUN):
		case c.adopted:
			c.remove()
			c.state = unknown
			s.mover.Send(c, s.window.Next())
		default:
			c.remove()
			s.sent.add(c)
			c.state, c.sn = sent, s.window.Take()
			s.mover.Send(c, c.sn)
		}
		c = next
	}
}

// Heard says that a PDU of the target has arrived, with these numbers.
func (s *Session) Heard(now clock.Instant, exp, max seq.Num) {
	if s.state != Up {
		return
	}
	s.heard = now
	s.window.Update(exp, max)
	s.pump()
}

// Alive says that octets of the target have arrived at that time.
func (s *Session) Alive(at clock.Instant) {
	if s.state == Up && at > s.heard {
		s.heard = at
	}
}

// Finished says that the target has sent the status of a command.
func (s *Session) Finished(c *Command) {
	switch c.state {
	case sent:
		s.progress()
		s.end(c, Done)
	case aborting:
		s.forget(c)
	}
}

// Rejected says that the target has rejected a command. Such a target has not received
// the command: another request uses its number, because later commands wait for it (RFC
// 7143 §11.17.1).
func (s *Session) Rejected(c *Command) {
	if c.state != sent && c.state != aborting {
		return
	}
	if !s.window.Received(c.sn) {
		s.mover.Fill(c.sn)
	}
	if c.state == aborting {
		s.forget(c)
		return
	}
	s.end(c, Rejected)
}

// end completes a command that the target does not have any more.
func (s *Session) end(c *Command, o Outcome) {
	c.remove()
	c.state = unknown
	s.owner.Completed(c, o)
}

// forget drops a command that has completed for the owner.
func (s *Session) forget(c *Command) {
	c.remove()
	c.state = unknown
}

// Ponged says that the target has answered a ping, or a command that the mover has sent
// without the machine.
func (s *Session) Ponged() { s.progress() }

// progress says that the target does its work: the next loss starts the waits anew.
func (s *Session) progress() {
	s.attempts, s.lostAt = 0, clock.Never
}
