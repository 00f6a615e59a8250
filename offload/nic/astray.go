package nic

import "time"

// A route change that the watcher has missed leaves a connection at the wrong interface.
// The segments of its peer then arrive at another one. So do the segments of a peer that
// sends by another path for ever. Only the kernel's route tells the two apart.

// astrayPause is how long routes are not looked up again because of where segments
// arrive. A peer may send by another path for ever.
const astrayPause = 10 * time.Second

// recheckRoutes looks the routes up again if almost all segments of a connection of this
// interface arrive at others. A connection whose route leads through another interface
// then follows it. Without such a route, nothing changes.
func (n *NIC) recheckRoutes(now time.Time) {
	astray := false
	for _, e := range n.engines {
		astray = e.TakeAstray() || astray
	}
	if !astray || now.Before(n.nextRecheck) {
		return
	}
	n.nextRecheck = now.Add(astrayPause)
	n.log.Debug("segments arrive at other interfaces: routes looked up again", "link", n.link.Name)
	n.hops.doubt()
}
