package iscsi

import (
	"fmt"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	isession "github.com/stag-rdma/stag/iscsi/session"
	"github.com/stag-rdma/stag/offload/seq"
)

// cmdSN is a number that the machine proposes. The flow numbers the commands itself.
type cmdSN = seq.Num

// EventKind is what an Event is about.
type EventKind uint8

const (
	EventUp          EventKind = iota // the session has logged in again, and the unit is the same
	EventHeld                         // the connection is lost; commands wait for the next login
	EventLost                         // the session has ended
	EventAttention                    // a unit was reset or powered on, or has lost reservations and settings (unit attention 29h)
	EventUnprotected                  // the target refused the reset of a unit; writes that had no status complete with ErrUncertain
	EventMessage                      // the target sent an asynchronous message
	EventPathUp                       // a path of DialMultipath works
	EventPathDown                     // a path of DialMultipath does not work
	EventAccess                       // the access state of a path has changed
)

func (k EventKind) String() string {
	names := [...]string{"up", "held", "lost", "unit attention", "unprotected", "message", "path up", "path down", "access state"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is what Config.Events gets.
type Event struct {
	Kind EventKind
	Err  error  // the cause, or what the target said; nil for EventUp and EventPathUp
	Path string // host:port of the path that the event is about; "": the session, or the disk
}

// tellEvent tells the program and the log of an event.
func (s *Session) tellEvent(k EventKind, err error) {
	s.cfg.Log.Info("iscsi session", "target", s.url.Target, "event", k.String(), "err", err)
	if s.cfg.Events != nil {
		s.telling.Lock()
		defer s.telling.Unlock()
		s.cfg.Events(Event{Kind: k, Err: err})
	}
}

// owner is a Session as its machine sees it above.
type owner struct{ s *Session }

// reasons are the ends of commands as the flow knows them.
var reasons = map[isession.Outcome]flow.Reason{
	isession.Canceled: flow.Canceled, isession.Uncertain: flow.Uncertain,
}

// Completed implements session.Owner.
func (o owner) Completed(c *isession.Command, how isession.Outcome) {
	if how == isession.SessionLost { // Finish ends it, when the cause is known
		delete(o.s.kept, c.ID)
		return
	}
	why, ok := reasons[how]
	if !ok {
		why = flow.Uncertain
	}
	o.s.release(c, why)
}

// Managed implements session.Owner.
func (o owner) Managed(uint64, uint8, bool) {}

// Changed implements session.Owner.
func (o owner) Changed(state isession.State, cause error) {
	s := o.s
	for _, c := range s.conns {
		c.seen.tell(state.String(), cause)
	}
	switch state {
	case isession.Up:
		if s.epoch != 0 {
			s.tellEvent(EventUp, nil)
		}
	case isession.Held:
		s.tellEvent(EventHeld, cause)
	case isession.Lost, isession.Down:
		s.end(state, cause)
	}
}

// end ends the session.
func (s *Session) end(state isession.State, cause error) {
	if state == isession.Down {
		cause = ErrClosed
	}
	s.over = true
	s.mu.Lock()
	s.cause = cause
	s.mu.Unlock()
	s.tellEvent(EventLost, cause)
}

// Notice implements session.Owner.
func (o owner) Notice(h *pdu.Header) {
	o.s.tellEvent(EventMessage, fmt.Errorf("asynchronous message %d of the target", uint8(h.Event())))
}

// Unprotected implements session.Owner.
func (o owner) Unprotected(lun uint64, response uint8) {
	o.s.tellEvent(EventUnprotected, fmt.Errorf("the target refused LUN RESET of unit %016x with response %d", lun, response))
}
