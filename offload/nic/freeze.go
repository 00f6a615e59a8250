package nic

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// Frozen is an adapter whose connections no engine runs, so that another process can
// continue them. Exactly one of Thaw and Leave must end it. One goroutine at a time may use
// a Frozen.
//
//	old process                             new process
//	Inheritances, Hand       descriptors    Config.Inherit, OpenAll until Ready
//	Freeze, Departures       connections    (keeps them)
//	Release                                 Ready returns, OpenAll binds the queues
//	Leave                                   NIC.Receive for each connection
//
// The program on the interfaces stays the same one. From Freeze until Receive it drops the
// packets of the connections, or the placeholders do, and the peers send them again.
type Frozen struct {
	set      *set
	nics     []*NIC
	list     []*leaving
	released bool
}

// leaving is a connection that no engine runs.
type leaving struct {
	flow   *Flow
	parted engine.Parted
	told   engine.Heading
}

// Departure describes a connection that leaves. Together with Parted and the placeholder's
// descriptor it is everything that NIC.Receive needs. All fields can be encoded.
type Departure struct {
	ID       engine.FlowID // in the old process
	Port     string        // interface
	Queue    int
	Key      bpf.FlowKey
	Kind     bpf.Kind
	Tuple    handoff.Tuple
	Query    loader.Query
	Forced   bool // the connection was told to leave through the interface, whatever the route
	Accepted bool
	Kept     handoff.Kept
	DstMAC   wire.MAC

	Held      int64 // Flow.Held in nanoseconds
	Inherited Inherited
}

// Inheritance is what the process that has the interface hands over to the one that opens it
// next. OpenAll takes the files over, also on error.
type Inheritance struct {
	Program loader.Handed
	Claims  []string   // paths of the claims of the queues
	Files   []*os.File // descriptors of Claims, then those of Program
}

// Close closes the files.
func (i *Inheritance) Close() {
	for _, f := range i.takeFiles() {
		f.Close()
	}
}

// takeFiles returns the remaining files, and forgets them.
func (i *Inheritance) takeFiles() []*os.File {
	files := i.Files
	i.Files = nil
	return files
}

// Hand returns what another process needs to open the interface instead of this one. The
// files are duplicates, which the caller owns. The interface works as before.
func (n *NIC) Hand() (i *Inheritance, err error) {
	i = &Inheritance{}
	defer func() {
		if err != nil {
			i.Close()
			err = fmt.Errorf("hand %s over: %w", n.link.Name, err)
		}
	}()
	for _, c := range n.claims {
		path, f, err := c.File()
		if err != nil {
			return nil, err
		}
		i.Claims, i.Files = append(i.Claims, path), append(i.Files, f)
	}
	program, files, err := n.steer.Hand()
	i.Program, i.Files = program, append(i.Files, files...)
	return i, err
}

// inheritClaims takes the claims of the queues over.
func (n *NIC) inheritClaims() error {
	from := n.cfg.Inherit
	if len(from.Claims) != n.cfg.Queues || len(from.Files) < len(from.Claims) {
		return fmt.Errorf("the other process serves %d queues of %s, which has %d: it was changed meanwhile", len(from.Claims), n.link.Port, n.cfg.Queues)
	}
	for _, path := range from.Claims {
		f := from.Files[0]
		from.Files = from.Files[1:]
		c, err := loader.InheritClaim(path, f)
		if err != nil {
			return err
		}
		c.Leave() // until sign the claim is the other process's
		n.undo.Add(c.Close)
		n.claims = append(n.claims, c)
	}
	return nil
}

// Keep makes this process the recorded owner of interfaces that it has inherited. Before
// Keep, Close leaves everything to the other process.
func (n *NIC) Keep() error {
	errs := []error{n.steer.Sign()}
	for _, c := range n.claims {
		errs = append(errs, c.Sign())
	}
	return errors.Join(errs...)
}

// Freeze takes every connection of the adapter of n out of its engine, without notice to any
// peer. It waits for take-overs that have begun, and take-overs that begin later wait for
// Thaw. Other methods of the flows wait too. A connection that is about to end stays, and
// ends.
func (n *NIC) Freeze(ctx context.Context) (*Frozen, error) {
	s := n.set
	if err := s.gate.Close(ctx); err != nil {
		return nil, fmt.Errorf("wait for take-overs: %w", err)
	}
	s.growing.Lock()
	z := &Frozen{set: s}
	for _, n := range s.list() {
		if !n.isClosed() {
			z.nics = append(z.nics, n)
		}
	}
	if err := z.detach(ctx); err != nil {
		return nil, errors.Join(err, z.Thaw())
	}
	return z, nil
}

// detach takes the connections out of their engines. It holds the locks of the flows until Thaw
// or Leave.
func (z *Frozen) detach(ctx context.Context) error {
	byEngine := map[*engine.Engine][]*leaving{}
	for _, n := range z.nics {
		for _, f := range n.Flows() {
			f.shifting.Lock()
			f.moving.Lock()
			if n.flow(f.id) != f {
				f.unlock()
				continue
			}
			l := &leaving{flow: f, told: n.hops.detach(f)}
			byEngine[f.Engine()] = append(byEngine[f.Engine()], l)
		}
	}
	var failed []error
	for e, list := range byEngine {
		parted, errs := e.DetachAll(ctx, idsOf(list))
		for i, l := range list {
			if errs[i] == nil {
				l.parted = parted[i]
				z.list = append(z.list, l)
				continue
			}
			l.flow.NIC().hops.installed(context.WithoutCancel(ctx), l.flow, engine.Heading{Flow: l.flow.id})
			l.flow.unlock()
			if !HasEnded(errs[i]) {
				failed = append(failed, errs[i])
			}
		}
	}
	return errors.Join(failed...)
}

func idsOf(list []*leaving) (ids []engine.FlowID) {
	for _, l := range list {
		ids = append(ids, l.flow.id)
	}
	return ids
}

// arrivals returns the connections by their engines, as the engines know them.
func (z *Frozen) arrivals() (byEngine map[*engine.Engine][]engine.Arrival, of map[*engine.Engine][]*leaving) {
	byEngine, of = map[*engine.Engine][]engine.Arrival{}, map[*engine.Engine][]*leaving{}
	for _, l := range z.list {
		e := l.flow.Engine()
		byEngine[e] = append(byEngine[e], engine.Arrival{ID: l.flow.id, Key: l.flow.key, Parted: l.parted})
		of[e] = append(of[e], l)
	}
	return byEngine, of
}

func (f *Flow) unlock() {
	f.moving.Unlock()
	f.shifting.Unlock()
}

// Len returns how many connections are frozen, including those in TIME-WAIT.
func (z *Frozen) Len() int { return len(z.list) }

// Each calls f for each frozen connection until f fails. hold is a duplicate of the
// placeholder's descriptor, which f must close. It is nil for a connection in TIME-WAIT that
// has no placeholder any more.
func (z *Frozen) Each(f func(d *Departure, p *engine.Parted, hold *os.File) error) error {
	for _, l := range z.list {
		d, hold, err := l.departure()
		if err == nil {
			err = f(d, &l.parted, hold)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *leaving) departure() (*Departure, *os.File, error) {
	f := l.flow
	kept, hold, err := f.hold.Hand()
	if err != nil {
		return nil, nil, err
	}
	n := f.NIC()
	queue, _ := n.QueueOf(f)
	return &Departure{
		ID: f.id, Port: n.link.Name, Queue: queue, Key: f.key, Kind: f.kind, Tuple: f.hold.Tuple(), Query: f.query,
		Forced: n.hops.forced(f), Accepted: f.accepted, Kept: kept, DstMAC: l.parted.Head.DstMAC(),
		Held: int64(f.stall), Inherited: f.inherited,
	}, hold, nil
}

// forced reports whether the way of f leads through this interface whatever the route.
func (h *hops) forced(f *Flow) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f.way != nil && f.way.query.forced
}

// Release gives the queues of the interfaces up, so that another process can bind sockets to
// them.
func (z *Frozen) Release(ctx context.Context) error {
	z.released = true
	return z.eachQueue(ctx, func(n *NIC, queue int, fresh int) error { return n.queues[queue].Suspend(fresh) })
}

// resume binds the queues again.
func (z *Frozen) resume(ctx context.Context) error {
	return z.eachQueue(ctx, func(n *NIC, queue int, fresh int) error {
		if err := n.queues[queue].Resume(fresh); err != nil {
			return err
		}
		return n.plug(queue, n.first+engine.Lane(queue), n.queues[queue].FD())
	})
}

// eachQueue calls do for each queue between two steps of its engine. fresh is a socket of
// the interface's namespace, which do must take over. Afterwards it ends the engine's
// sleep.
func (z *Frozen) eachQueue(ctx context.Context, do func(n *NIC, queue int, fresh int) error) error {
	var errs []error
	for _, n := range z.nics {
		for i := range n.queues {
			errs = append(errs, n.withSocket(func(fresh int) (used bool, err error) {
				err = n.engines[i].Through(ctx, func() error { used = true; return do(n, i, fresh) })
				return used, err
			}))
			n.queues[i].Wake()
		}
	}
	return errors.Join(errs...)
}

// withSocket calls do with an unbound socket of the interface's namespace. If do has not used
// the socket, withSocket closes it.
func (n *NIC) withSocket(do func(fresh int) (used bool, err error)) error {
	fresh := -1
	err := n.space.Do(func() (err error) { fresh, err = afxdp.NewSocket(); return err })
	if err != nil {
		return err
	}
	used, err := do(fresh)
	if !used {
		err = errors.Join(err, unix.Close(fresh))
	}
	return err
}

// Thaw makes the engines run the connections again, and binds the queues if they were
// released. If a queue cannot be bound, its connections are lost.
func (z *Frozen) Thaw() error {
	defer z.set.growing.Unlock()
	defer z.set.gate.Open(nil)
	ctx := context.Background()
	var errs []error
	if z.released {
		errs = append(errs, z.resume(ctx))
	}
	for _, l := range z.list {
		l.wakeful()
	}
	lists, of := z.arrivals()
	for e, list := range lists {
		for i, err := range e.AdoptAll(ctx, list) {
			of[e][i].thawed(ctx, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wakeful makes the connection send an acknowledgement at once, because the peer may have sent
// much meanwhile.
func (l *leaving) wakeful() {
	if l.parted.Linger == nil && l.parted.State.Moved != nil {
		m := *l.parted.State.Moved
		m.AckNow = true
		l.parted.State.Moved = &m
	}
}

// thawed ends the freeze of a flow, whose connection an engine runs unless err is set.
func (l *leaving) thawed(ctx context.Context, err error) {
	f := l.flow
	defer f.unlock()
	n := f.NIC()
	if err == nil { // the program may have dropped the entry, because no engine lived for long
		if failed := n.enterReceived(f, f.Engine()); failed != nil {
			n.log.Error("flow entry not made again", "key", f.key, "err", failed)
		}
	}
	n.hops.installed(ctx, f, l.told)
	if err != nil {
		n.ends.add(f.Engine().Depart(ctx, f.id, l.parted, err))
	}
}

// Leave ends the connections in this process without notice to any peer: the other process
// has them. The upper layers and Flow.Err get told. Leave also gives up the programs and the
// claims, so that Close leaves them to the other process. The interfaces take no connection
// over any more: Take fails with told.
func (z *Frozen) Leave(told error) {
	defer z.set.growing.Unlock()
	defer z.set.gate.Open(told)
	for _, n := range z.nics {
		n.left.Store(true)
		n.steer.Leave()
		for _, c := range n.claims {
			c.Leave()
		}
	}
	lists, of := z.arrivals()
	for e, list := range lists {
		for i, end := range e.DepartAll(context.Background(), list, told) {
			of[e][i].left(end)
		}
	}
}

// left ends the flow in this process.
func (l *leaving) left(end engine.End) {
	f := l.flow
	defer f.unlock()
	n := f.NIC()
	if end.Stats != (tcp.Stats{}) {
		f.final = &end.Stats
	}
	f.finish(end.Err)
	if err := f.hold.Leave(); err != nil {
		n.log.Error("placeholder not closed", "key", f.key, "err", err)
	}
	n.free(f.id) // the way stays: the other process keeps the next hop
	n.drop(f)
}
