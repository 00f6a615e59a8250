package nic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// ErrBarred is returned by MoveTo for an interface that gets no connection now.
var ErrBarred = errors.New("the interface is drained, or has not settled after a failure")

// Bar is a reason why no connection may move to an interface.
type Bar uint32

const (
	BarDrained   Bar = 1 << iota // the interface is drained
	BarUnsettled                 // the interface has failed, and has not settled yet
)

// Cause says why a connection moves to another interface.
type Cause uint8

const (
	CauseAsked   Cause = iota // a caller of MoveTo asked for the move
	CauseRoute                // the kernel's route leads through the other interface now
	CauseCarrier              // the same, and the interface has lost its carrier
	CauseLost                 // the interface is gone, or its steering program
	CauseDrain                // the interface is being drained
	CauseFailed               // the interface is up, but nothing passes it
)

// NumCauses is the number of causes.
const NumCauses = len(causes)

var causes = [...]string{
	CauseAsked:   "asked",
	CauseRoute:   "route",
	CauseCarrier: "carrier",
	CauseLost:    "lost",
	CauseDrain:   "drain",
	CauseFailed:  "failed",
}

func (c Cause) String() string { return causes[c] }

// Shift says how MoveTo moves a connection to another interface.
type Shift struct {
	Cause Cause

	// Forced makes the packets leave through the interface although the kernel's route
	// leads through another. When the route changes later, the connection follows.
	Forced bool

	// Blind moves the connection even if no route leads through the interface. The
	// connection waits there until one does.
	Blind bool

	// Wait limits how long MoveTo waits for the next hop. 0 means loader.ResolveWait.
	Wait time.Duration
}

// Movement is the result of a MoveTo.
type Movement struct {
	Flow     *Flow
	From, To *NIC
	Cause    Cause
	At       clock.Instant // time when the connection left its engine; 0 if it has not moved
	Frozen   time.Duration // how long no engine ran the connection
	Err      error         // nil: the connection has moved. Otherwise it is at From.
}

// MoveTo gives the connection to another interface of the adapter. The peer does not
// notice, but for the other Ethernet address. The way to the peer must lead through the
// interface, unless s says otherwise. MoveTo waits for the next hop before it takes the
// connection out of its engine. If the old interface is down or has failed, the octets in
// flight are sent again at once. MoveTo does nothing if the connection is at the interface.
//
// After an error the connection is where it was, or has ended. Done shows which.
func (f *Flow) MoveTo(ctx context.Context, to *NIC, s Shift) error {
	f.shifting.Lock()
	defer f.shifting.Unlock()
	from := f.NIC()
	if from == to {
		return nil
	}
	m := Movement{Flow: f, From: from, To: to, Cause: s.Cause}
	m.At, m.Frozen, m.Err = f.moveTo(ctx, to, s)
	if m.Err != nil {
		m.Err = fmt.Errorf("move flow %#x from %s to %s: %w", uint32(f.id), from.link.Name, to.link.Name, m.Err)
	}
	follows := s.Cause == CauseRoute || s.Cause == CauseCarrier
	if HasEnded(m.Err) || follows && errors.Is(m.Err, ErrBarred) { // a route that leads through a barred interface is no news
		return m.Err
	}
	if m.Err != nil {
		from.log.Warn("flow not moved", "flow", f.id, "key", f.key, "from", from.link.Name, "to", to.link.Name, "cause", s.Cause.String(), "err", m.Err)
	} else {
		from.log.Info("flow moved", "flow", f.id, "key", f.key, "from", from.link.Name, "to", to.link.Name, "cause", s.Cause.String(), "frozen", m.Frozen)
	}
	if from.cfg.Moved != nil {
		from.cfg.Moved(m)
	}
	return m.Err
}

func (f *Flow) moveTo(ctx context.Context, to *NIC, s Shift) (at clock.Instant, frozen time.Duration, err error) {
	if err := f.mayMoveTo(to, s); err != nil {
		return 0, 0, err
	}
	w, err := f.wayThrough(ctx, to, s)
	if err != nil {
		return 0, 0, err
	}
	if at, frozen, err = f.change(to, w, s.Cause); err != nil {
		to.hops.part(w)
	}
	return at, frozen, err
}

// mayMoveTo checks what MoveTo needs of an interface.
func (f *Flow) mayMoveTo(to *NIC, s Shift) error {
	from := f.NIC()
	switch {
	case from.set != to.set:
		return errors.New("the interfaces belong to different adapters")
	case to.cfg.VLAN != from.cfg.VLAN:
		return fmt.Errorf("%s has VLAN %d, and the connection has VLAN %d", to.link.Name, to.cfg.VLAN, from.cfg.VLAN)
	case f.query.Dst.Is6() && f.query.Dst.IsLinkLocalUnicast():
		return fmt.Errorf("%v is an address of the link of %s only", f.query.Dst, from.link.Name)
	case s.Forced && f.query.Device != 0:
		return errors.New("the connection's socket was bound to an interface (SO_BINDTODEVICE)")
	case to.Barred():
		return ErrBarred
	}
	return context.Cause(to.life)
}

// wayThrough returns the connection's way through an interface, with one user more.
func (f *Flow) wayThrough(ctx context.Context, to *NIC, s Shift) (*way, error) {
	key := wayKey{Query: f.query, forced: s.Forced}
	if s.Forced {
		key.Device = to.link.Index
	}
	wait := s.Wait
	if wait == 0 {
		wait = loader.ResolveWait
	}
	w, err := to.hops.join(ctx, key, wait)
	if err != nil && s.Blind {
		return to.hops.joinBlind(key), nil
	}
	return w, err
}

// loses reports whether the octets in flight are lost when a connection leaves this interface
// for a reason. An interface that has failed may be up.
func (n *NIC) loses(why Cause) bool { return n.down.Load() || why == CauseFailed }

// change moves the connection, whose way through the new interface is w.
func (f *Flow) change(to *NIC, w *way, why Cause) (at clock.Instant, frozen time.Duration, err error) {
	f.moving.Lock()
	defer f.moving.Unlock()
	from := f.NIC()
	if from.flow(f.id) != f {
		return 0, 0, engine.ErrNoFlow
	}
	from.set.transit.begun.Add(1)
	defer from.set.transit.ended.Add(1)
	if err := to.admit(f); err != nil {
		return 0, 0, err
	}
	target := to.leastLoaded()
	told := from.hops.detach(f)
	next, fresh := to.hops.headingFor(w, told)
	away, gone, err := engine.Move(context.Background(), f.id, f.Engine(), target, func(p *engine.Parted) {
		p.Head.SetDstMAC(next.Dst)
		p.Head.SetSrcMAC(next.Src)
		if p.Linger != nil {
			return
		}
		p.State.Fresh, p.State.Lost = fresh, from.loses(why)
		moved := *p.State.Moved
		moved.AckNow = true // the first segment teaches switches the new place, and reopens a closed window
		p.State.Moved = &moved
	})
	if err != nil {
		to.dismiss(f)
		from.hops.installed(context.Background(), f, engine.Heading{Flow: f.id})
		if gone != nil {
			from.ends.add(*gone)
		}
		return 0, 0, from.refused(f, err)
	}
	f.at.Store(target)
	old := f.settleAt(to, w)
	to.hops.installed(context.Background(), f, next)
	if err := to.enterMoved(f, target); err != nil {
		to.log.Error("flow entry not updated", "key", f.key, "err", err)
	}
	from.dismiss(f)
	from.hops.part(old)
	if f.told != nil {
		f.told()
	}
	return away.Left, away.Back.Sub(away.Left), nil
}

// refused returns the error of a move that has failed. If the connection goes on here, the
// error does not say that an engine has stopped, because HasEnded would take that for the
// end of the connection.
func (n *NIC) refused(f *Flow, err error) error {
	if !errors.Is(err, engine.ErrStopped) || f.Engine().Inspect(context.Background(), f.id, func(*tcp.Conn) {}) != nil {
		return err
	}
	return errors.New(err.Error())
}

// settleAt makes to the interface of f, and w its way. settleAt returns the way before.
func (f *Flow) settleAt(to *NIC, w *way) (old *way) {
	first, second := f.NIC(), to
	if first.number > second.number {
		first, second = second, first
	}
	first.hops.mu.Lock()
	defer first.hops.mu.Unlock()
	second.hops.mu.Lock()
	defer second.hops.mu.Unlock()
	old, f.way = f.way, w
	f.home.Store(to)
	return old
}

// enterMoved updates the flow's entry in every map of flows. The map of this interface may
// have had no room for the flow before.
func (n *NIC) enterMoved(f *Flow, at *engine.Engine) error {
	entry := f.entry(bpf.Live, at)
	err := n.update(f.key, entry)
	if errors.Is(err, loader.ErrNoFlow) {
		return n.insert(f.key, entry)
	}
	return err
}

// admit registers a flow that is about to move here. MaxFlows does not stop a move. A flow
// that is registered before the interface is lost is among those that lose finds.
func (n *NIC) admit(f *Flow) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life.Err() != nil {
		return context.Cause(n.life)
	}
	n.flows[f.id] = f
	n.ids++
	return nil
}

// dismiss removes a flow that is at another interface.
func (n *NIC) dismiss(f *Flow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.flows, f.id)
	n.ids--
}

// detach makes tell skip f, and returns the heading that f's engine has.
func (h *hops) detach(f *Flow) (told engine.Heading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	told.Flow = f.id
	if have := f.way.flows[f]; have != nil {
		told = *have
	}
	delete(f.way.flows, f)
	return told
}

// headingFor returns the heading for the first frames on the way w of a flow that has had
// the heading told at another interface. The Ethernet address of the next hop stays the
// old one if it is not known here. fresh says that the path differs: the next hop is
// another one.
func (h *hops) headingFor(w *way, told engine.Heading) (next engine.Heading, fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = h.heading(w, told)
	if next.Dst == (wire.MAC{}) && w.hop != nil {
		next.Dst = w.hop.mac // an address that may be old is better than none
	}
	fresh = next.Dst != told.Dst
	next.MTU = 0 // installed sends the MTU of this interface to the engine
	return next, fresh
}

// Routed returns the interface of the adapter through which the kernel's route to the
// peer leads now. Routed returns nil if the route leads elsewhere.
func (f *Flow) Routed() *NIC {
	n := f.NIC()
	r, err := n.net.Next(f.query)
	if err != nil {
		return nil
	}
	return n.set.at(r.OutIf)
}

// HasEnded reports whether an error of MoveTo says that the connection has ended.
func HasEnded(err error) bool { return hasEnded(err) || errors.Is(err, tcp.ErrEnded) }
