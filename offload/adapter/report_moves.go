package adapter

import (
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
)

// States of a port between which connections move.
const (
	stateUp      = "up"
	stateDown    = "down"
	stateLost    = "lost"
	stateDrained = "drained"
)

// stateOf returns whether connections can be at the port, and may come to it. A port in a
// group has the states of the group, too.
func (a *Adapter) stateOf(p *Port) string {
	switch {
	case p.nic.Lost():
		return stateLost
	case p.nic.BarredBy(nic.BarDrained):
		return stateDrained
	}
	if state, in := a.groups.state(p.name); in {
		return state
	}
	if p.nic.Down() {
		return stateDown
	}
	return stateUp
}

// reportMoves describes a port, whose device is d, as a place of moves.
func (a *Adapter) reportMoves(p *Port, d *report.Device, live map[engine.FlowID]*liveFlow) report.Port {
	r := report.Port{Device: p.name, State: a.stateOf(p), Addresses: len(d.Addresses), Flows: d.Flows}
	segments, foreign := 0, 0
	for _, x := range live {
		segments += x.arrivals.Segments
		foreign += x.arrivals.Foreign
	}
	r.Foreign = percent(foreign, segments)
	m := a.moves.get(p.name)
	m.describe(&r)
	return r
}

// arrives returns the other port at which segments of the connection arrive, and how many
// of 100 do. Both are zero if less than a half of one does.
func (x *liveFlow) arrives(portAt func(engine.Lane) string) (port string, share int) {
	if share = percent(x.arrivals.Foreign, x.arrivals.Segments); share == 0 {
		return "", 0
	}
	if port = portAt(x.arrivals.Lane); port == "" {
		return "", 0 // the port has been removed
	}
	return port, share
}

// percent returns part of all in hundredths, rounded.
func percent(part, all int) int {
	if all == 0 {
		return 0
	}
	return (200*part + all) / (2 * all)
}

// portAt returns the name of the port with a lane.
func (a *Adapter) portAt(lane engine.Lane) string {
	for _, p := range a.Ports() {
		for _, e := range p.nic.Engines() {
			if e.Lane() == lane {
				return p.name
			}
		}
	}
	return ""
}
