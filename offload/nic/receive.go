package nic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/wire"
)

// Incoming is a connection of another process.
type Incoming struct {
	Departure Departure
	// Parted has the state, and the upper layer, which is nil for a connection in TIME-WAIT. Head
	// is not used.
	Parted engine.Parted
	Hold   *os.File // the placeholder's descriptor; nil: the placeholder is closed
	Moved  func()   // value of Options.Moved
}

// Receive continues connections of another process, whose interface this NIC has inherited.
// Receive takes the files over, also on error. flows has a flow, or errs has an error, for each
// connection at its place. Nothing is left here of a connection with an error, and its peer is
// not told. Its upper layer gets the error.
func (n *NIC) Receive(ctx context.Context, list []Incoming) (flows []*Flow, errs []error) {
	ctx = context.WithoutCancel(ctx)
	flows, errs = make([]*Flow, len(list)), make([]error, len(list))
	r := receiving{nic: n, lists: map[*engine.Engine][]engine.Arrival{}, of: map[*engine.Engine][]*received{}}
	var all []*received
	for i := range list {
		in := &received{in: &list[i]}
		all = append(all, in)
		if in.err = r.prepare(ctx, in); in.err != nil {
			r.giveUp(in)
		}
	}
	for e, arrivals := range r.lists {
		for i, err := range e.AdoptAll(ctx, arrivals) {
			in := r.of[e][i]
			if in.err = err; err == nil {
				in.err = n.enterReceived(in.flow, e)
			}
			if in.err != nil {
				r.giveUp(in)
			}
		}
	}
	n.hops.receivedAll(ctx, all)
	for i, in := range all {
		if in.err != nil {
			t := in.in.Departure.Tuple
			errs[i] = fmt.Errorf("continue %v to %v: %w", t.Local, t.Remote, in.err)
			continue
		}
		flows[i] = in.flow
		in.flow.moving.Unlock()
		n.log.Debug("flow received from another process", "flow", in.flow.id, "key", in.flow.key, "there", in.in.Departure.ID)
	}
	return flows, errs
}

// receiving is a Receive in progress.
type receiving struct {
	nic   *NIC
	lists map[*engine.Engine][]engine.Arrival
	of    map[*engine.Engine][]*received // the connections of lists
}

// received is a connection that Receive continues.
type received struct {
	in      *Incoming
	flow    *Flow // nil until prepare has made it; prepare has locked flow.moving
	heading engine.Heading
	err     error
}

// prepare does everything that does not need the engine.
func (r *receiving) prepare(ctx context.Context, in *received) (err error) {
	n, d, p := r.nic, &in.in.Departure, in.in.Parted
	kept, err := handoff.InheritPlaceholder(d.Tuple, d.Kept, in.in.Hold)
	if err != nil {
		return err
	}
	f := &Flow{key: d.Key, query: d.Query, kind: d.Kind, done: make(chan struct{}), accepted: d.Accepted, told: in.in.Moved,
		stall: time.Duration(d.Held), inherited: d.Inherited, hold: kept}
	f.home.Store(n)
	f.moving.Lock()
	in.flow = f
	if f.id, err = n.reserve(ctx, d.Key); err != nil {
		return err
	}
	in.heading = n.wayOf(f, d)
	p.Head, err = wire.NewHeaderTemplate(wire.HeaderFields{
		DstMAC: in.heading.Dst, SrcMAC: in.heading.Src, VLAN: f.key.VLAN,
		Src: d.Tuple.Local, Dst: d.Tuple.Remote, TTL: d.Kept.IP.TTL, TOS: d.Kept.IP.TOS,
	})
	if err != nil {
		return err
	}
	at := n.engines[0]
	if d.Queue >= 0 && d.Queue < len(n.engines) {
		at = n.engines[d.Queue]
	}
	f.at.Store(at)
	if err := n.add(f, f.hold); err != nil {
		return err
	}
	if p.Linger != nil {
		f.finish(nil) // the upper layer has ended in the other process
	} else if p.State.Moved != nil {
		m := *p.State.Moved
		m.AckNow = true // tells the peer the window, and that this end is alive
		p.State.Moved = &m
	}
	r.lists[at] = append(r.lists[at], engine.Arrival{ID: f.id, Key: f.key, Parted: p})
	r.of[at] = append(r.of[at], in)
	return nil
}

// wayOf gives f its way, and returns the heading for its first frames.
func (n *NIC) wayOf(f *Flow, d *Departure) engine.Heading {
	key := wayKey{Query: d.Query, forced: d.Forced}
	if d.Forced {
		key.Device = n.link.Index
	}
	w := n.hops.joinBlind(key)
	n.hops.mu.Lock()
	f.way = w
	n.hops.mu.Unlock()
	heading, _ := n.hops.headingFor(w, engine.Heading{Flow: f.id, Dst: d.DstMAC})
	return heading
}

// enterReceived makes or replaces the entry of a flow that this process runs from now on.
func (n *NIC) enterReceived(f *Flow, at *engine.Engine) error {
	entry := f.entry(bpf.Live, at)
	err := n.update(f.key, entry)
	if errors.Is(err, loader.ErrNoFlow) {
		return n.insert(f.key, entry)
	}
	return err
}

// giveUp removes what prepare has made of a connection, and tells its upper layer.
func (r *receiving) giveUp(in *received) {
	n, f := r.nic, in.flow
	if u := in.in.Parted.ULP; u != nil && in.in.Parted.Linger == nil {
		defer u.Fault(clock.Now(), in.err)
	}
	if f == nil {
		return
	}
	defer f.moving.Unlock()
	n.hops.leave(f)
	n.drop(f)
	if f.id != 0 {
		n.forget(f.id, in.err)
	}
	in.err = errors.Join(in.err, f.hold.Leave())
}

// receivedAll is installed for many flows.
func (h *hops) receivedAll(ctx context.Context, list []*received) {
	h.telling.Lock()
	defer h.telling.Unlock()
	news := headings{}
	h.mu.Lock()
	for _, in := range list {
		if in.err != nil {
			continue
		}
		if w := in.flow.way; w != nil && w.of == h {
			w.flows[in.flow] = &in.heading
			news.of(h, w, in.flow)
		}
	}
	h.mu.Unlock()
	h.redirect(ctx, news)
}

// Sweep removes the entries of flows that the other process has not handed over, because
// they ended meanwhile. The kernel gets their packets again. Sweep must be called after the
// last Receive and before the first Take.
func (n *NIC) Sweep() error {
	have := map[bpf.FlowKey]bool{}
	for _, f := range n.Flows() {
		have[f.key] = true
	}
	var gone []bpf.FlowKey
	err := n.steer.Flows(func(k bpf.FlowKey, _ bpf.Flow) bool {
		if !have[k] {
			gone = append(gone, k)
		}
		return true
	})
	for _, k := range gone {
		if failed := n.remove(k); !errors.Is(failed, loader.ErrNoFlow) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
