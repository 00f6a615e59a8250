package rdma

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
)

// EventType is the kind of an asynchronous event.
type EventType uint8

const (
	QPFatal          EventType = iota + 1 // a QP's connection ended with an error; Event.QP and Event.Err are set
	CQOverrun                             // a CQ lost completions, and its QPs are in error; Event.CQ is set
	SRQLimitReached                       // fewer receives are posted to an SRQ than its limit (SetLimit); Event.SRQ is set
	QPLastWQEReached                      // a QP with an SRQ has completed the last receive that it took; Event.QP is set
	PortDown                              // a port has lost its carrier; Event.Port is set
	PortUp                                // a port has its carrier again; Event.Port is set
	PortLost                              // a port can no longer be used; Event.Port and Event.Err are set
	RouteAway                             // the kernel would now send a QP's packets another way; Event.QP, Event.Port and Event.Err are set
	RouteBack                             // the kernel would send a QP's packets through its port again; Event.QP and Event.Port are set
	CommEst                               // the initiator's first message has come to an accepted QP; Event.QP is set
	SQDrained                             // a QP that closes in good order has completed every send; Event.QP is set
	DeviceFatal                           // the adapter has lost its last port; Event.Err is set
	PortSuspect                           // a port of a group shows a sign of a fault; Event.Port and Event.Err are set
	PortFailed                            // a port of a group does not work, and its connections move away; Event.Port and Event.Err are set
	PortSettled                           // a port of a group works again, and has for Group.Settle; Event.Port is set
	PathMoved                             // a QP's connection has moved to another port, or could not; Event.QP, Event.Port, Event.From, Event.Cause, Event.Frozen and Event.Err are set
)

func (t EventType) String() string {
	switch t {
	case QPFatal:
		return "QP fatal"
	case CQOverrun:
		return "CQ overrun"
	case SRQLimitReached:
		return "SRQ limit reached"
	case QPLastWQEReached:
		return "QP last WQE reached"
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
	case CommEst:
		return "communication established"
	case SQDrained:
		return "send queue drained"
	case DeviceFatal:
		return "device fatal"
	case PortSuspect:
		return "port suspect"
	case PortFailed:
		return "port failed"
	case PortSettled:
		return "port settled"
	case PathMoved:
		return "path moved"
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// Event reports a change that no completion reports.
//
// RouteAway and RouteBack change nothing by themselves. The connection continues through
// its port, whether that port still leads to the peer or not. If the new route leads
// through another port of the adapter, the connection moves there instead, and the event is
// PathMoved. If PathMoved has an Err, the connection is at Event.From and tries again.
//
// A QP reports CommEst and SQDrained only with QPConfig.AsyncNotify. After CommEst the sends
// of a QP that has accepted its connection leave: RFC 5044 §7.1.2 lets the initiator send
// first. SQDrained follows a Disconnect, or the peer's close, when the requests of the send
// queue have completed and the FIN leaves. After DeviceFatal no connection can be made with
// the adapter, and its listeners have ended. The events of one QP come in their order.
type Event struct {
	Type EventType
	QP   *QP    // QP that the event concerns, for QPFatal, QPLastWQEReached, RouteAway, RouteBack, PathMoved, CommEst and SQDrained
	CQ   *CQ    // CQ that the event concerns, for CQOverrun
	SRQ  *SRQ   // SRQ that the event concerns, for SRQLimitReached
	Port string // name of the port, for PortDown, PortUp, PortLost, RouteAway, RouteBack and PathMoved (the new port)
	Err  error  // QPFatal: a *QPError. CQOverrun: ErrCQOverrun. PortLost, RouteAway, DeviceFatal: the reason. PathMoved: why the connection has not moved, or nil

	// The next fields are set for PathMoved.
	From   string        // name of the port before
	Cause  string        // why the connection moves: asked, route, carrier, lost, drain or failed
	Frozen time.Duration // how long the connection neither sent nor received
}

// eventsKept is how many unread events the queue holds.
const eventsKept = 256

// events is a queue. Adding an event never blocks. If the queue is full, the new event is
// lost.
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

// portEvents maps an event type of the device to that of this package.
var portEvents = [...]EventType{
	adapter.PortDown: PortDown, adapter.PortUp: PortUp, adapter.PortLost: PortLost,
	adapter.RouteAway: RouteAway, adapter.RouteBack: RouteBack,
	adapter.PortSuspect: PortSuspect, adapter.PortFailed: PortFailed, adapter.PortSettled: PortSettled, adapter.PathMoved: PathMoved,
}

// notify is the device's callback for events of ports and routes.
func (a *Adapter) notify(e adapter.Event) {
	ev := Event{Type: portEvents[e.Type], Port: e.Port, Err: e.Err}
	switch e.Type {
	case adapter.PathMoved:
		ev.From, ev.Cause, ev.Frozen = e.From, e.Cause.String(), e.Frozen
		if ev.QP = a.qpOn(e.Carriers[0]); ev.QP != nil {
			a.events.add(ev)
		}
	case adapter.RouteAway, adapter.RouteBack:
		for _, qp := range a.carriedBy(e.Carriers) {
			ev.QP = qp
			a.events.add(ev)
		}
	default:
		a.events.add(ev)
	}
	if e.Last {
		a.events.add(Event{Type: DeviceFatal, Err: e.Err})
		a.failListeners(e.Err)
	}
}

// qpOn returns the QP of a connection. qpOn returns nil if it has none.
func (a *Adapter) qpOn(c adapter.Carrier) *QP {
	for _, qp := range a.allQPs() {
		if at := qp.conn.Load(); at != nil && at.Carrier() == c {
			return qp
		}
	}
	return nil
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

// failListeners ends all Listeners. Accept and Listen return err from then on.
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

// Events returns the channel of asynchronous events. A program need not read it. If 256
// events are unread, further events are dropped and EventsLost counts them. The channel
// is never closed.
func (a *Adapter) Events() <-chan Event { return a.events.c }

// EventsLost returns how many events were dropped because the channel was full.
func (a *Adapter) EventsLost() uint64 { return a.events.lost.Load() }
