package nic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// ErrOtherInterface is returned for a connection whose packets leave through an
// interface other than the NIC's.
var ErrOtherInterface = errors.New("not this interface's connection")

// errNotTaken ends a flow that was not installed. The flow has no upper layer, so that
// no caller gets this error.
var errNotTaken = errors.New("not taken over")

// AnyQueue leaves the choice of a queue to Take.
const AnyQueue = -1

// Options are the options of Take. The zero value is not useful. Start from
// DefaultOptions.
type Options struct {
	// Kind is the kind of the upper layer in the flow entry.
	Kind bpf.Kind
	// Queue is the queue whose engine gets the flow. AnyQueue means the engine with the
	// fewest flows. If segments have arrived at another queue, the engine of that queue
	// gets the flow.
	Queue int
	// Parked, if set, runs when the peer's segments no longer reach the kernel and are
	// kept for the engine. The connection's state is read after Parked. The kernel
	// sends the octets that Parked writes to the connection. The engine gets the
	// answer, however fast it comes. If Parked fails, the take-over fails.
	Parked func() error
	// Accepted says that a listener has accepted the connection. In TIME-WAIT, a socket
	// of the kernel usually reserves the addresses and ports of a flow. An accepted
	// connection does not need this socket, because the kernel never chooses the port
	// of a listener for a connection that the kernel opens. Each accepted flow thus
	// saves a descriptor.
	Accepted bool
	// Moved, if set, is called after each move of the connection to another engine. Moved
	// must not call the flow.
	Moved func()
	// Inject makes the take-over fail at a step. Only tests use it.
	Inject func(handoff.Step) error
}

// DefaultOptions are for an upper layer of octets, at any queue.
var DefaultOptions = Options{Kind: bpf.KindBytes, Queue: AnyQueue}

// Take moves the established connection c from the kernel to this interface's engines.
// From then on ulp uses the connection there. On success Take has closed c, without
// notice to the peer. On error c still belongs to the kernel, unless the error is a
// *handoff.LostError. The caller must not use c meanwhile.
func (n *NIC) Take(ctx context.Context, c syscall.Conn, ulp stream.ULP, o Options) (*Flow, error) {
	sock, err := handoff.OpenWith(c, n.diag)
	if err != nil {
		return nil, err
	}
	defer sock.Close()
	if err := n.set.gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer n.set.gate.Leave()
	sock.Inject(o.Inject)
	sock.Limit(n.MSS(!sock.Tuple().Remote.Addr().Is4()))
	if err := context.Cause(n.life); err != nil { // ErrClosed, or the reason why the interface is lost
		return nil, err
	}
	ctx, stop := n.whileOpen(ctx)
	defer stop()
	t, err := n.prepare(ctx, sock, ulp, o)
	if err != nil {
		return nil, fmt.Errorf("take over %v: %w", sock.Tuple().Remote, err)
	}
	defer t.asked()
	if err := sock.Take(ctx, t, n.grace); err != nil {
		n.hops.leave(t.flow)
		return nil, err
	}
	if closer, ok := c.(io.Closer); ok {
		closer.Close() // closes only a descriptor, because the socket is the placeholder now
	}
	n.log.Info("flow taken over", "flow", t.flow.id, "key", t.flow.key, "queue", t.flow.Engine().Queue(), "held", t.flow.stall,
		"unread", t.flow.inherited.Unread, "queued", t.flow.inherited.Queued)
	return t.flow, nil
}

// whileOpen returns a context that ends when ctx ends or when Close begins. If Close ends
// the context, the cause is ErrClosed. In both cases a connection that still belongs to
// the kernel stays with the kernel.
func (n *NIC) whileOpen(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.life, func() { cancel(context.Cause(n.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// takeover is one take-over in progress. takeover implements handoff.Steps.
type takeover struct {
	ctx   context.Context // context that never ends, because an effect on only some engines would be worse than a late error
	nic   *NIC
	flow  *Flow
	ulp   stream.ULP // upper layer; it is not in the Flow, so that a flow in TIME-WAIT takes little memory
	opts  Options
	tuple handoff.Tuple
	began time.Time

	asked func()        // function that ends the take-over's turn to ask the peer
	heard chan struct{} // channel that is closed when a segment has arrived at any engine
	once  sync.Once     // closes heard
}

// prepare finds the way to the peer, which must lead through this interface. The flow
// keeps the way until hops.leave.
func (n *NIC) prepare(ctx context.Context, sock *handoff.Socket, ulp stream.ULP, o Options) (*takeover, error) {
	if o.Queue >= len(n.engines) {
		return nil, fmt.Errorf("queue %d: %s has %d", o.Queue, n.link.Name, len(n.engines))
	}
	tuple := sock.Tuple()
	key, err := bpf.NewFlowKey(tuple.Remote, tuple.Local, n.cfg.VLAN)
	if err != nil {
		return nil, err
	}
	if err := n.net.Policy(tuple.Local, tuple.Remote, sock.Routing().Mark); err != nil {
		return nil, err
	}
	f := &Flow{key: key, query: query(tuple, sock.Routing()), kind: o.Kind, accepted: o.Accepted, told: o.Moved, done: make(chan struct{})}
	f.home.Store(n)
	if err := n.hops.enter(ctx, f, f.query); err != nil {
		return nil, err
	}
	asked, err := n.pace.enter(ctx)
	if err != nil {
		n.hops.leave(f)
		return nil, err
	}
	at := f.Way()
	n.log.Debug("take-over: way found", "key", key, "next hop", at.NextHop, "mac", at.MAC)
	return &takeover{ctx: context.WithoutCancel(ctx), nic: n, flow: f, ulp: ulp, opts: o, tuple: tuple, asked: asked, heard: make(chan struct{})}, nil
}

// query returns the inputs to the kernel's choice of the route of a connection's
// packets.
func query(t handoff.Tuple, r handoff.Routing) loader.Query {
	dst := t.Remote.Addr()
	if t.Scope != 0 {
		dst = dst.WithZone(strconv.Itoa(t.Scope))
	}
	return loader.Query{Dst: dst, Src: t.Local.Addr(), Mark: r.Mark, Device: r.Device}
}

// Park implements handoff.Steps. First every engine learns of the flow. Then the
// program steers the flow's segments.
func (t *takeover) Park() error {
	n, f := t.nic, t.flow
	if n.isClosed() {
		return ErrClosed
	}
	id, err := n.reserve(t.ctx, f.key)
	if err != nil {
		return err
	}
	f.id = id
	for _, e := range n.engines {
		if err := e.Park(t.ctx, id, f.key, t.hear); err != nil {
			t.forget()
			return err
		}
	}
	t.began = time.Now()
	if err := n.enter(t.ctx, f.key, f.entry(bpf.Park, nil)); err != nil {
		t.forget()
		return err
	}
	time.AfterFunc(unheardLong, t.asked) // ends the turn even without an answer
	if t.opts.Parked == nil {
		return nil
	}
	if err := t.opts.Parked(); err != nil {
		t.Unpark()
		return err
	}
	return nil
}

// hear records that an engine has received a segment of the flow. Engines call hear.
func (t *takeover) hear() {
	t.once.Do(func() { close(t.heard) })
	t.asked()
}

// Heard implements handoff.Steps.
func (t *takeover) Heard() <-chan struct{} { return t.heard }

// Unpark implements handoff.Steps.
func (t *takeover) Unpark() {
	if err := t.nic.remove(t.flow.key); err != nil {
		t.nic.log.Error("flow entry not deleted", "key", t.flow.key, "err", err)
	}
	t.forget()
	t.nic.log.Debug("take-over: given up, segments go to the kernel again", "flow", t.flow.id, "key", t.flow.key)
}

// forget removes the flow from every engine and from the directory.
func (t *takeover) forget() {
	t.nic.forget(t.flow.id, errNotTaken)
}

// forget makes every engine forget a flow. Then it frees the id.
func (n *NIC) forget(id engine.FlowID, err error) {
	for _, e := range n.engines {
		e.Remove(context.Background(), id, err) // an error means that the engine has stopped, and has forgotten all flows
	}
	n.free(id)
}

// free frees a flow's id, which no engine knows any more.
func (n *NIC) free(id engine.FlowID) {
	n.set.dir.Free(id)
	n.mu.Lock()
	n.ids--
	n.mu.Unlock()
}

// Install implements handoff.Steps. The engine where the segments arrive gets the
// connection. All other engines send the segments that they hold to that engine.
func (t *takeover) Install(st tcp.State, p *handoff.Placeholder) error {
	n, f := t.nic, t.flow
	f.moving.Lock() // no Move may begin before all engines know the flow
	defer f.moving.Unlock()
	heading := n.hops.now(f)
	head, err := t.headers(p, heading)
	if err != nil {
		return err
	}
	at, err := t.choose()
	if err != nil {
		return err
	}
	f.at.Store(at)
	if err := n.add(f, p); err != nil {
		return err
	}
	if err := n.set.dir.Move(f.id, at.Lane()); err != nil {
		n.drop(f)
		return err
	}
	if err := at.Install(t.ctx, f.id, st, head, t.ulp); err != nil {
		n.drop(f)
		return err
	}
	if st.MTU > heading.MTU {
		heading.MTU = 0 // the interface's MTU has become smaller; with 0, hops sends the engine a new heading
	}
	n.hops.installed(t.ctx, f, heading)
	f.stall = time.Since(t.began)
	f.inherited = Inherited{Unread: len(st.Unread), Queued: len(st.Queue), Unacked: int(st.SndUna.Until(st.SndNxt))}
	for _, e := range n.engines {
		if e != at {
			e.Forward(context.Background(), f.id)
		}
	}
	if err := n.update(f.key, f.entry(bpf.Live, at)); err != nil {
		n.log.Error("flow entry not updated", "key", f.key, "err", err)
	}
	n.log.Debug("take-over: state installed", "flow", f.id, "key", f.key, // logged at the end, because a log call can take long
		"snd_una", uint32(st.SndUna), "snd_nxt", uint32(st.SndNxt), "rcv_nxt", uint32(st.RcvNxt), "mss", st.MSS, "unacked", f.inherited.Unacked)
	return nil
}

// choose returns the engine for the flow: the engine where most segments arrived. If none
// arrived, choose returns the engine of Options.Queue, or the engine with the fewest
// flows.
func (t *takeover) choose() (best *engine.Engine, err error) {
	most := 0
	for _, e := range t.nic.engines {
		parked, err := e.Parked(t.ctx, t.flow.id)
		if err != nil {
			return nil, err
		}
		if parked > most {
			best, most = e, parked
		}
	}
	switch {
	case best != nil:
		return best, nil
	case t.opts.Queue >= 0:
		return t.nic.engines[t.opts.Queue], nil
	}
	return t.nic.leastLoaded(), nil
}

func (t *takeover) headers(p *handoff.Placeholder, h engine.Heading) (wire.HeaderTemplate, error) {
	ip := p.IP()
	return wire.NewHeaderTemplate(wire.HeaderFields{
		DstMAC: h.Dst,
		SrcMAC: h.Src,
		VLAN:   t.flow.key.VLAN,
		Src:    t.tuple.Local,
		Dst:    t.tuple.Remote,
		TTL:    ip.TTL,
		TOS:    ip.TOS,
	})
}
