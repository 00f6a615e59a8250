package rdma

import (
	"fmt"
	"sync/atomic"
)

// EventType is what an asynchronous event is about.
type EventType uint8

const (
	QPFatal   EventType = iota + 1 // a QP's connection ended in bad order: Event.QP, Event.Err
	CQOverrun                      // a CQ lost completions, its QPs are errored: Event.CQ
	PortDown                       // a port has no carrier any more: Event.Port
	PortUp                         // a port has its carrier again: Event.Port
	PortLost                       // a port is of no use any more: Event.Port, Event.Err
)

func (t EventType) String() string {
	switch t {
	case QPFatal:
		return "QP fatal"
	case CQOverrun:
		return "CQ overrun"
	case PortDown:
		return "port down"
	case PortUp:
		return "port up"
	case PortLost:
		return "port lost"
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// Event is something that no completion tells.
type Event struct {
	Type EventType
	QP   *QP    // QPFatal
	CQ   *CQ    // CQOverrun
	Port string // PortDown, PortUp, PortLost
	Err  error  // QPFatal: a *QPError. CQOverrun: ErrCQOverrun. PortLost: why
}

// eventsKept is how many events wait for a reader.
const eventsKept = 256

// events is a queue that never blocks who adds.
type events struct {
	c    chan Event
	lost atomic.Uint64
}

func newEvents() *events { return &events{c: make(chan Event, eventsKept)} }

func (e *events) add(ev Event) {
	select {
	case e.c <- ev:
	default:
		e.lost.Add(1)
	}
}

// Events delivers asynchronous events. Nobody has to read them: what finds 256
// waiting is dropped and counted by EventsLost. The channel is never closed.
func (a *Adapter) Events() <-chan Event { return a.events.c }

// EventsLost is how many events were dropped because nobody read them.
func (a *Adapter) EventsLost() uint64 { return a.events.lost.Load() }
