package rdma

import (
	"net/netip"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
)

// GroupMode says who moves the addresses of a port that has failed to another port.
type GroupMode uint8

const (
	// GroupFollow leaves addresses and routes to somebody else: keepalived, a routing
	// daemon, a network manager or an operator. The connections follow the routes.
	GroupFollow GroupMode = iota
	// GroupBackup moves the addresses and routes of a port that has failed to the next
	// port that works, and announces the addresses there by gratuitous ARP and
	// unsolicited Neighbour Advertisements. A journal in /run/stag completes a move that
	// a crash has interrupted, at the next Open or by `stag unload`.
	GroupBackup
)

func (m GroupMode) String() string { return adapter.GroupMode(m).String() }

// Group is a set of ports that are watched together. The ports ask hosts on their links
// whether they are reached. A port has failed if its carrier or its interface is gone, or
// if a host no longer answers through it and answers through another port of the group. A
// host that answers through no port has failed itself, and moves nothing.
//
// A port that has failed is not used again before it has worked for Settle. Events
// PortSuspect, PortFailed and PortSettled report what happens.
type Group struct {
	Ports []string // names of two ports or more; the first is preferred
	Mode  GroupMode

	// Probe lists the hosts that are asked, by ARP or Neighbour Solicitation: 4 at most,
	// on the links of the ports. nil: the next hops of the connections.
	Probe []netip.Addr

	Interval time.Duration // time between two rounds of questions; 0 means 100 ms
	Settle   time.Duration // how long a port that has failed must have worked before it is used again; 0 means 10 s

	FailBack bool // GroupBackup: the addresses return to a preferred port that has settled
	DryRun   bool // GroupBackup: log what would be done to addresses and routes, and do not do it
}

// groups returns the groups for the device.
func groups(list []Group) (out []adapter.Group) {
	for _, g := range list {
		out = append(out, adapter.Group{
			Ports: g.Ports, Mode: adapter.GroupMode(g.Mode), Probe: g.Probe,
			Interval: g.Interval, Settle: g.Settle, FailBack: g.FailBack, DryRun: g.DryRun,
		})
	}
	return out
}
