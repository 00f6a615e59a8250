package adapter

import "github.com/stag-rdma/stag/offload/nic"

// EventType is the kind of an event of a port.
type EventType uint8

const (
	PortDown  EventType = iota // the port's interface has lost its link
	PortUp                     // the port's interface has its link again
	PortLost                   // the port is lost for good; Err and Last are valid
	RouteAway                  // the kernel would now send the packets of Carriers another way; Err is valid
	RouteBack                  // the kernel would send the packets of Carriers through the port again
)

// Event is a change of a port or of a route.
type Event struct {
	Type     EventType
	Port     string
	Carriers []Carrier // RouteAway, RouteBack: the connections that the event concerns
	Err      error     // PortLost, RouteAway: the reason
	Last     bool      // PortLost: no port is left
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
	a.tell(Event{Type: t, Port: port})
}

// portLost sends the event PortLost. Last of that event is set if every port is lost
// for good.
func (a *Adapter) portLost(port string, err error) {
	last := int(a.lost.Add(1)) == len(a.cfg.Ports)
	a.tell(Event{Type: PortLost, Port: port, Err: err, Last: last})
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
