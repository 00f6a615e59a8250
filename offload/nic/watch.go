package nic

import (
	"context"
	"time"

	"github.com/stag-rdma/stag/loader"
)

// refreshEvery is how often neighbours are refreshed if the kernel does not refresh
// them itself (before Linux 5.16).
const refreshEvery = 15 * time.Second

// watch begins to follow changes of the interface and of its flows' ways, until the NIC
// is closed.
func (n *NIC) watch() error {
	ctx, cancel := context.WithCancel(n.life)
	events, err := loader.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	n.undo.Add(func() error { cancel(); return nil })
	link, err := n.present() // this reads the changes from before the watch began
	if err != nil {
		return err
	}
	n.hops.link(ctx, link.MAC, link.MTU)
	n.hops.carrier(ctx, link.Running)
	n.down.Store(!link.Running)
	n.idle.Store(n.link.Bond != "" && !link.Active)
	w := &watcher{NIC: n, ctx: ctx, hasCarrier: link.Running, others: map[int]bool{}}
	n.running.Go(func() { w.follow(events) })
	n.running.Go(func() { n.hops.survey(ctx) })
	return nil
}

// watcher is the goroutine that reads the kernel's messages. watcher waits for no
// answer from the link. watcher leaves work that takes long to the surveyor.
type watcher struct {
	*NIC
	ctx        context.Context // context that ends when the NIC is closed
	hasCarrier bool
	losses     uint32       // how often the kernel has seen the carrier lost
	counted    bool         // losses is known
	others     map[int]bool // other interfaces, by index; true: the interface runs
}

// follow reads events until the channel is closed.
func (w *watcher) follow(events <-chan loader.Event) {
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			w.event(e)
		case <-refresh.C:
			w.hops.refresh(w.ctx)
		}
	}
}

func (w *watcher) event(e loader.Event) {
	switch e := e.(type) {
	case loader.NeighbourEvent:
		if e.Index == w.link.Index {
			w.hops.neighbour(w.ctx, e)
		}
	case loader.LinkEvent:
		w.linkEvent(e)
	case loader.RouteEvent:
		w.hops.reroute(e.Concerns)
	case loader.LostEvent:
		if err := w.readLink(); err != nil {
			w.log.Warn("interface not read", "link", w.link.Name, "err", err)
		}
		w.hops.keepAll(w.ctx, func(*hop) bool { return true })
		w.hops.reroute(everywhere)
	}
}

func (w *watcher) linkEvent(e loader.LinkEvent) {
	if e.Index == w.link.Index && !e.Gone {
		w.hops.link(w.ctx, e.MAC, e.MTU)
	}
	if e.Index == w.link.PortIndex {
		w.log.Info("link changed", "link", e.Name, "up", e.Up, "carrier", e.Running, "gone", e.Gone)
		w.flapped(e)
		w.carrier(e.Running)
		w.member(e.Active && !e.Gone)
		return
	}
	// Routes through another interface appear and disappear with that interface. The
	// kernel sends no message about these routes.
	runs := e.Running && e.Up && !e.Gone
	if was := w.others[e.Index]; was != runs {
		w.hops.reroute(everywhere)
	}
	w.others[e.Index] = runs
	if e.Gone {
		delete(w.others, e.Index)
	}
}

// readLink reads the state of the link, because events were lost.
func (w *watcher) readLink() error {
	l, err := w.present()
	if err != nil {
		return err
	}
	w.hops.link(w.ctx, l.MAC, l.MTU)
	w.carrier(l.Running)
	w.member(l.Active)
	return nil
}

// flapped reports that the interface has lost its link and has it again, if the kernel has
// counted more losses than it has reported.
func (w *watcher) flapped(e loader.LinkEvent) {
	hidden := e.Losses != w.losses && w.counted && w.hasCarrier && e.Running
	w.losses, w.counted = e.Losses, true
	if hidden && w.cfg.Flapped != nil {
		w.cfg.Flapped()
	}
}

// carrier reports that the interface has lost its link, or has it again.
func (w *watcher) carrier(running bool) {
	if running != w.hasCarrier && w.cfg.Carrier != nil {
		w.cfg.Carrier(running)
	}
	changed := running != w.hasCarrier
	w.hasCarrier = running
	w.down.Store(!running)
	w.hops.carrier(w.ctx, running)
	if changed {
		w.reselect()
	}
}
