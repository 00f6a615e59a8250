package rdma

import (
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/adapter"
)

// EventType is what an asynchronous event is about.
type EventType uint8

const (
	QPFatal   EventType = iota + 1 // a QP's connection ended in bad order: Event.QP, Event.Err
	CQOverrun                      // a CQ lost completions, its QPs are errored: Event.CQ
	PortDown                       // a port has no carrier any more: Event.Port
	PortUp                         // a port has its carrier again: Event.Port
	PortLost                       // a port is of no use any more: Event.Port, Event.Err
	RouteAway                      // the kernel would send a QP's packets another way than through its port now: Event.QP, Event.Port, Event.Err
	RouteBack                      // that is over: Event.QP, Event.Port
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

// Event is something that no completion tells.
//
// RouteAway and RouteBack change nothing: the connection goes on through the port
// that it has, which may still lead to the peer, or not. To use the new way, close
// the QP and connect another.
type Event struct {
	Type EventType
	QP   *QP    // QPFatal, RouteAway, RouteBack
	CQ   *CQ    // CQOverrun
	Port string // PortDown, PortUp, PortLost, RouteAway, RouteBack
	Err  error  // QPFatal: a *QPError. CQOverrun: ErrCQOverrun. PortLost, RouteAway: why
}

// eventsKept is how many events wait for a reader.
const eventsKept = 256

// events is a queue; adding to it never blocks.
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

// portEvents is what the device's events are called here.
var portEvents = [...]EventType{
	adapter.PortDown: PortDown, adapter.PortUp: PortUp, adapter.PortLost: PortLost,
	adapter.RouteAway: RouteAway, adapter.RouteBack: RouteBack,
}

// notify is told what happens to ports and routes.
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

// carriedBy are the QPs of connections, in their order.
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

// failListeners makes Accept return err from now on.
func (a *Adapter) failListeners(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.loose {
		if l, ok := c.(*Listener); ok {
			l.die(err)
		}
	}
}

// Events delivers asynchronous events. Nobody has to read them: what finds 256
// waiting is dropped and counted by EventsLost. The channel is never closed.
func (a *Adapter) Events() <-chan Event { return a.events.c }

// EventsLost is how many events were dropped because nobody read them.
func (a *Adapter) EventsLost() uint64 { return a.events.lost.Load() }
