package nic

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/wire"
)

// refreshEvery is how often neighbours are refreshed where the kernel does not
// do so by itself (before Linux 5.16).
const refreshEvery = 15 * time.Second

// watch follows what happens to the interface and to the neighbours of its
// flows, until the NIC is closed.
func (n *NIC) watch() error {
	ctx, cancel := context.WithCancel(context.Background())
	events, err := loader.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	n.undo.add(func() error { cancel(); return nil })
	n.hasCarrier = true
	n.running.Go(func() { n.follow(events) })
	return nil
}

// follow ends when events does.
func (n *NIC) follow(events <-chan loader.Event) {
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			n.event(e)
		case <-refresh.C:
			n.refresh()
		}
	}
}

func (n *NIC) event(e loader.Event) {
	switch e := e.(type) {
	case loader.NeighbourEvent:
		switch {
		case e.Index != n.link.Index:
		case e.MAC != nil:
			n.redirect(e.IP, e.MAC)
		default:
			n.keepAgain(e.IP)
		}
	case loader.LinkEvent:
		if e.Index == n.link.PortIndex {
			n.log.Info("link changed", "link", e.Name, "up", e.Up, "carrier", e.Running, "gone", e.Gone)
			n.carrier(e.Running)
		}
	case loader.RouteEvent:
		// Without a carrier nobody answers: it would be a second's wait for
		// nothing, and carrier comes here when there is one.
		if n.hasCarrier {
			n.reroute()
		}
	case loader.LostEvent:
		n.hasCarrier = true // as far as we know
		n.reroute()
	}
}

// carrier looks up the way of every flow again when the link has come back.
func (n *NIC) carrier(running bool) {
	back := running && !n.hasCarrier
	if running != n.hasCarrier && n.cfg.Carrier != nil {
		n.cfg.Carrier(running)
	}
	n.hasCarrier = running
	if back {
		n.reroute()
	}
}

// redirect sends the packets of every flow with that next hop to its new
// Ethernet address.
func (n *NIC) redirect(hop netip.Addr, mac []byte) {
	for _, f := range n.Flows() {
		if f.route.NextHop.WithZone("") == hop && f.move(mac) {
			n.log.Info("neighbour moved", "flow", f.id, "next hop", hop, "mac", wire.MAC(mac))
		}
	}
}

// reroute looks up the way of every flow again, since routes have changed or
// news of neighbours was lost. A flow whose route leads elsewhere now stays
// where it is, and the log says so.
func (n *NIC) reroute() {
	for _, f := range n.Flows() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		r, err := n.route(ctx, f.hold.Tuple())
		cancel()
		switch {
		case err != nil:
			n.log.Warn("route lost", "flow", f.id, "key", f.key, "err", err)
		case f.move(r.DstMAC):
			n.log.Info("next hop changed", "flow", f.id, "next hop", r.NextHop)
		}
		// Also when nobody has answered yet: the kernel then goes on asking, and
		// the answer is news. To ask took the entry out of its care.
		n.keepFor(f)
	}
}

// move changes the flow's next hop to mac and reports whether it was another.
func (f *Flow) move(mac []byte) bool {
	f.nic.mu.Lock()
	same := bytes.Equal(f.route.DstMAC, mac)
	f.route.DstMAC = bytes.Clone(mac)
	f.nic.mu.Unlock()
	if same {
		return false
	}
	return f.engine.Redirect(context.Background(), f.id, wire.MAC(mac)) == nil
}

// keep has the kernel keep the next hop's address fresh while flows use it.
func (n *NIC) keep(r loader.Route) error {
	managed, err := n.net.KeepNeighbour(r.NextHop, r.OutIf)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.refreshing = n.refreshing || !managed
	n.mu.Unlock()
	return nil
}

// keepAgain makes the kernel look for a next hop that it has forgotten, as it
// does when the link goes down, if a flow still uses it.
func (n *NIC) keepAgain(hop netip.Addr) {
	for _, f := range n.Flows() {
		if f.route.NextHop.WithZone("") == hop {
			n.keepFor(f)
			return
		}
	}
}

// keepFor keeps a flow's next hop fresh from now on. Where that fails the link
// is down: when it is up again, carrier comes here.
func (n *NIC) keepFor(f *Flow) {
	if err := n.keep(f.route); err != nil {
		n.log.Warn("neighbour not kept", "flow", f.id, "err", err)
	}
}

// refresh repeats what keep did where the kernel does not manage entries.
func (n *NIC) refresh() {
	n.mu.Lock()
	needed := n.refreshing
	n.mu.Unlock()
	if !needed {
		return
	}
	for _, f := range n.Flows() {
		n.keepFor(f)
	}
}
