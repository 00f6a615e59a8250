package adapter

import (
	"time"

	"github.com/stag-rdma/stag/offload/nic"
)

// EventType is the kind of an event of a port.
type EventType uint8

const (
	PortDown    EventType = iota // the port's interface has lost its link
	PortUp                       // the port's interface has its link again
	PortLost                     // the port is lost for good; Err and Last are valid
	RouteAway                    // the kernel would now send the packets of Carriers another way; Err is valid
	RouteBack                    // the kernel would send the packets of Carriers through the port again
	PortSuspect                  // the port shows a sign of a fault; Err says which
	PortFailed                   // the port does not work, and its connections move away; Err is the reason
	PortSettled                  // the port works again, and has for long enough
	PathMoved                    // the connection of Carriers has moved to the port, or could not; From, Cause, Frozen and Err are valid
)

// Event is a change of a port or of a route.
type Event struct {
	Type     EventType
	Port     string
	Carriers []Carrier     // RouteAway, RouteBack, PathMoved: the connections that the event concerns
	Err      error         // PortLost, PortSuspect, PortFailed, RouteAway: the reason; PathMoved: why the connection has not moved, or nil
	Last     bool          // PortLost: no port is left
	From     string        // PathMoved: the port before
	Cause    nic.Cause     // PathMoved: why the connection moves
	Frozen   time.Duration // PathMoved: how long no engine ran the connection
}

func (a *Adapter) tell(e Event) {
	if a.cfg.Notify != nil {
		a.cfg.Notify(e)
	}
}

// carrierChanged reports that the interface of a port has lost its link, or has it
// again.
func (a *Adapter) carrierChanged(port string, up bool) {
	t := PortDown
	if up {
		t = PortUp
	}
	a.groups.carrier(port, up)
	a.tell(Event{Type: t, Port: port})
}

// portLost sends the event PortLost. Last of that event is set if every port is lost
// for good.
func (a *Adapter) portLost(port string, err error) {
	a.groups.gone(port)
	last := true
	for _, p := range a.Ports() {
		if p.name == port {
			p.lost.Store(true)
		}
		last = last && p.lost.Load()
	}
	a.tell(Event{Type: PortLost, Port: port, Err: err, Last: last})
}

// moved reports that a connection has moved from one port to another, or could not.
func (a *Adapter) moved(m nic.Movement) {
	from, to := a.portOf(m.From).name, a.portOf(m.To).name
	a.moves.count(from, to, m)
	a.tapped.addMove(from, to, m)
	a.tell(Event{
		Type: PathMoved, Port: to, From: from, Carriers: []Carrier{m.Flow},
		Cause: m.Cause, Frozen: m.Frozen, Err: m.Err,
	})
}

// diverted reports a change of the route of flows. If why is nil, the route leads
// through the port again. Otherwise the route leads elsewhere, for the reason why.
func (a *Adapter) diverted(port string, flows []*nic.Flow, why error) {
	e := Event{Type: RouteAway, Port: port, Err: why}
	if why == nil {
		e.Type = RouteBack
	}
	for _, f := range flows {
		e.Carriers = append(e.Carriers, f)
	}
	a.tell(e)
}
