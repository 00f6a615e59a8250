package rdma

import (
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/adapter"
)

// EventType is the kind of an asynchronous event.
type EventType uint8

const (
	QPFatal   EventType = iota + 1 // a QP's connection ended with an error: Event.QP, Event.Err
	CQOverrun                      // a CQ lost completions, and its QPs are in error: Event.CQ
	PortDown                       // a port has lost its carrier: Event.Port
	PortUp                         // a port has its carrier again: Event.Port
	PortLost                       // a port can no longer be used: Event.Port, Event.Err
	RouteAway                      // the kernel would now send a QP's packets another way than through its port: Event.QP, Event.Port, Event.Err
	RouteBack                      // the kernel would send a QP's packets through its port again: Event.QP, Event.Port
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
	case RouteAway:
		return "route away"
	case RouteBack:
		return "route back"
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// Event reports a change that no completion reports.
//
// RouteAway and RouteBack change nothing by themselves: the connection continues through
// its port, whether that port still leads to the peer or not. To use the new route, close
// the QP and connect another one.
type Event struct {
	Type EventType
	QP   *QP    // QPFatal, RouteAway, RouteBack
	CQ   *CQ    // CQOverrun
	Port string // PortDown, PortUp, PortLost, RouteAway, RouteBack
	Err  error  // QPFatal: a *QPError. CQOverrun: ErrCQOverrun. PortLost, RouteAway: the reason
}

// eventsKept is how many unread events the queue holds.
const eventsKept = 256

// events is a queue. Adding to it never blocks: an event that finds it full is lost.
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

// portEvents maps the device's events to those of this package.
var portEvents = [...]EventType{
	adapter.PortDown: PortDown, adapter.PortUp: PortUp, adapter.PortLost: PortLost,
	adapter.RouteAway: RouteAway, adapter.RouteBack: RouteBack,
}

// notify is the device's callback for events of ports and routes.
func (a *Adapter) notify(e adapter.Event) {
	ev := Event{Type: portEvents[e.Type], Port: e.Port, Err: e.Err}
	switch e.Type {
	case adapter.RouteAway, adapter.RouteBack:
		for _, qp := range a.carriedBy(e.Carriers) {
			ev.QP = qp
			a.events.add(ev)
		}
	default:
		a.events.add(ev)
	}
	if e.Last {
		a.failListeners(e.Err)
	}
}

// carriedBy returns the QPs of the given connections, in the same order.
func (a *Adapter) carriedBy(carriers []adapter.Carrier) (list []*QP) {
	of := map[adapter.Carrier]*QP{}
	for _, qp := range a.allQPs() {
		if c := qp.conn.Load(); c != nil {
			of[c.Carrier()] = qp
		}
	}
	for _, c := range carriers {
		if qp := of[c]; qp != nil {
			list = append(list, qp)
		}
	}
	return list
}

// failListeners ends all Listeners: Accept and Listen return err from now on.
func (a *Adapter) failListeners(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noPorts = err
	for c := range a.loose {
		if l, ok := c.(*Listener); ok {
			l.die(err)
		}
	}
}

// Events returns the channel of asynchronous events. Reading it is optional: if 256
// events are unread, a further event is dropped and counted by EventsLost. The channel
// is never closed.
func (a *Adapter) Events() <-chan Event { return a.events.c }

// EventsLost returns how many events were dropped because the channel was full.
func (a *Adapter) EventsLost() uint64 { return a.events.lost.Load() }
