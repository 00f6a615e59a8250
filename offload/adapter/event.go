package adapter

import "github.com/stag-rdma/stag/offload/nic"

// EventType names what happens to a port.
type EventType uint8

const (
	PortDown  EventType = iota // the port has no carrier any more
	PortUp                     // the port has its carrier again
	PortLost                   // the port is lost for good: Err, Last
	RouteAway                  // the kernel would send Carriers' packets another way now: Err
	RouteBack                  // the kernel would send Carriers' packets through the port again
)

// Event is something that happens to a port.
type Event struct {
	Type     EventType
	Port     string
	Carriers []Carrier // RouteAway, RouteBack: the connections that the event concerns
	Err      error     // PortLost, RouteAway: why
	Last     bool      // PortLost: no port is left
}

func (a *Adapter) tell(e Event) {
	if a.cfg.Notify != nil {
		a.cfg.Notify(e)
	}
}

// carrierChanged notifies that a port has lost its carrier, or has it again.
func (a *Adapter) carrierChanged(port string, up bool) {
	t := PortDown
	if up {
		t = PortUp
	}
	a.tell(Event{Type: t, Port: port})
}

// portLost notifies that a port is lost for good.
func (a *Adapter) portLost(port string, err error) {
	last := int(a.lost.Add(1)) == len(a.cfg.Ports)
	a.tell(Event{Type: PortLost, Port: port, Err: err, Last: last})
}

// diverted notifies that the route of connections leads elsewhere now or, if why is
// nil, that it leads through the port again.
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
