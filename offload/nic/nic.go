package nic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/undo"
)

// ErrClosed is returned by a NIC after Close.
var ErrClosed = errors.New("the interface has been closed")

// NIC is one network interface with everything that stag adds to it: the steering
// program, a socket and an engine for every receive queue, and the flows that were
// taken over, with their ways. A NIC is safe for concurrent use.
type NIC struct {
	// Open sets these fields, and they never change.
	cfg     Config
	net     *loader.Net
	link    loader.Link
	steer   *loader.Steering
	queues  []*afxdp.Queue
	engines []*engine.Engine
	set     *set
	number  int         // index in the set
	first   engine.Lane // the lane of queue 0
	grace   *handoff.Grace
	pace    *pace
	diag    *handoff.Diagnosis
	hops    *hops
	log     *slog.Logger
	undo    undo.Stack
	strays  strays
	claims  []*loader.Claim   // the queues, in their order
	space   *loader.Namespace // namespace of the interface
	sums    afxdp.Sums        // modes in which TCP checksums are left to the port

	running sync.WaitGroup // goroutines of engines, reaper and watcher
	ends    *endQueue
	shifts  *shiftQueue
	freed   chan struct{} // holds a token when a flow's id may have been freed

	life context.Context // life ends when Close begins, with ErrClosed, or when the interface is lost.
	die  context.CancelCauseFunc

	stop   context.CancelCauseFunc // function that ends the engines
	losing sync.Once
	barred atomic.Uint32 // Bars: no connection may be moved to this interface
	left   atomic.Bool   // another process has the program, the claims and the connections
	idle   atomic.Bool   // the interface is a member of a bond, which does not send through it
	down   atomic.Bool   // the link has no carrier, or the interface is lost
	again  atomic.Bool   // connections that could not follow their route will try again

	nextRecheck time.Time // time before which recheckRoutes does nothing; only watchStrays uses it

	mu     sync.Mutex // guards the fields below
	flows  map[engine.FlowID]*Flow
	ids    int // number of flow ids that this interface has reserved
	closed bool
}

func (n *NIC) find() (err error) {
	if n.net, err = loader.Open(); err != nil {
		return err
	}
	n.undo.Add(n.net.Close)
	if n.space, err = loader.CurrentNamespace(); err != nil {
		return err
	}
	n.undo.Add(n.space.Close)
	if n.diag, err = handoff.OpenDiagnosis(); err != nil {
		return err
	}
	n.undo.Add(n.diag.Close)
	if n.link, err = n.net.LookupLink(n.cfg.Link); err != nil {
		return err
	}
	if n.link.VLAN != 0 {
		n.cfg.VLAN = n.link.VLAN
	}
	n.hops = newHops(n.net, n.link, n.log, n.divert)
	n.hops.several, n.hops.nameOf, n.hops.yields, n.hops.kin = n.set.several, n.set.nameOf, n.yields, n.kin
	n.idle.Store(n.link.Bond != "" && !n.link.Active)
	return nil
}

// checkQueues checks that every receive queue gets an engine. A segment that arrives at
// a queue without an engine would be lost.
func (n *NIC) checkQueues() error {
	has := n.link.RxQueues
	switch {
	case n.cfg.Queues == 0:
		n.cfg.Queues = has
	case n.cfg.Queues != has:
		return fmt.Errorf("%d queues asked for, and the interface has %d: serve all of them, or run `ethtool -L %s combined %d`",
			n.cfg.Queues, has, n.link.Port, n.cfg.Queues)
	}
	return nil
}

// checkTags checks that the program sees the VLAN tags that it needs to recognize
// connections.
func (n *NIC) checkTags() error {
	if n.cfg.VLAN == 0 {
		return nil
	}
	return n.net.CheckTags(n.link)
}

// claim makes this NIC the recorded owner of every queue.
func (n *NIC) claim() error {
	if n.cfg.Inherit != nil {
		return n.inheritClaims()
	}
	loader.SweepClaims()
	for q := range n.cfg.Queues {
		c, err := loader.NewClaim(n.link, q)
		if err != nil {
			return err
		}
		n.undo.Add(c.Close)
		n.claims = append(n.claims, c)
		n.log.Debug("queue claimed", "link", n.link.Port, "queue", q)
	}
	return nil
}

// attach puts the program on the interface, or adopts the program of `stag load`.
func (n *NIC) attach() (err error) {
	if n.steer, err = n.program(); err != nil {
		return err
	}
	n.undo.Add(n.steer.Close)
	n.undo.Add(n.leaveMaps)
	n.log.Debug("program is there", "link", n.link.Port, "program", n.steer.ProgID(), "mode", n.steer.Mode().String(), "room for flows", n.steer.MaxFlows())
	return n.makeRoom()
}

// program returns the program that another process has handed over, the pinned program of
// the interface, or a private program.
func (n *NIC) program() (*loader.Steering, error) {
	if from := n.cfg.Inherit; from != nil {
		return loader.Inherit(n.link.Port, from.Program, from.takeFiles())
	}
	steer, err := loader.Adopt(n.link.Port)
	if !errors.Is(err, loader.ErrNotPinned) {
		return steer, err
	}
	return loader.Load(loader.Options{
		Link:     n.link.Port,
		Generic:  n.cfg.Generic,
		MaxFlows: n.roomToLoad(),
		With:     n.with(),
		Queues:   n.cfg.Queues,
	})
}

// makeRoom determines how many flows there is room for. An adopted program has the room
// with which it was loaded.
func (n *NIC) makeRoom() error {
	room := int(n.steer.MaxFlows())
	if n.cfg.MaxFlows == 0 {
		n.cfg.MaxFlows = min(defaultFlows, room)
	}
	if n.cfg.MaxFlows > room {
		return fmt.Errorf("%d flows asked for, and stag was loaded on %s with room for %d: ask for fewer, or stag unload %s and stag load %s --max-flows %d",
			n.cfg.MaxFlows, n.link.Port, room, n.link.Port, n.link.Port, n.cfg.MaxFlows)
	}
	return nil
}

// roomToLoad returns the number of flows for which a private program gets room: the
// number of all interfaces together. For a program that shares another program's map,
// roomToLoad returns 0, which means all the room of the map.
func (n *NIC) roomToLoad() uint32 {
	if n.with() != nil {
		return 0
	}
	return uint32(n.set.room())
}

// clear removes the flows that an earlier engine has left in the program. No engine
// runs those flows, because this NIC owns every queue now. The kernel gets their
// packets again and resets the peers. The flows of a process that hands them over stay.
func (n *NIC) clear() error {
	if n.steer.Instance() == "" || n.cfg.Inherit != nil {
		return nil
	}
	left, err := n.steer.Clear(n.allMaps()[0].slots(uint16(n.first)))
	n.log.Info("program adopted", "link", n.link.Port, "instance", n.steer.Instance(), "program", n.steer.ProgID(), "flows removed", left)
	return err
}

func (n *NIC) queueConfig() afxdp.Config {
	return afxdp.Config{
		Ifindex:   n.link.PortIndex,
		IfName:    n.link.Port,
		Port:      uint16(n.number),
		FrameSize: n.cfg.FrameSize,
		RxFrames:  n.cfg.RxFrames,
		TxFrames:  n.cfg.TxFrames,
		ZeroCopy:  n.cfg.ZeroCopy,
		Sums:      n.sums,
	}
}

// findSums finds out to whom the engines leave the TCP checksums of their packets.
func (n *NIC) findSums() error {
	if n.sums = n.cfg.Sums; n.sums != 0 {
		return nil
	}
	to := n.net.TxSums(n.link)
	if to.Copy {
		n.sums |= afxdp.SumsCopy
	}
	if to.ZeroCopy {
		n.sums |= afxdp.SumsZeroCopy
	}
	return nil
}

// prepareQueues makes a socket for every queue. The sockets are not bound yet.
func (n *NIC) prepareQueues() error {
	qc := n.queueConfig()
	size, err := qc.RegionSize()
	if err != nil {
		return err
	}
	for i := range n.cfg.Queues {
		region, err := n.set.arena.Cut(size)
		if err != nil {
			return err
		}
		qc.Queue, qc.Lane = uint16(i), n.first+engine.Lane(i)
		q, err := afxdp.Prepare(qc, region)
		if err != nil {
			return err
		}
		n.undo.Add(q.Close)
		n.queues = append(n.queues, q)
	}
	return nil
}

// bindQueues binds the sockets, and puts them into the maps of the programs.
func (n *NIC) bindQueues() error {
	for i, q := range n.queues {
		if err := q.Bind(); err != nil {
			return err
		}
		if err := n.plug(i, n.first+engine.Lane(i), q.FD()); err != nil {
			return err
		}
		n.log.Debug("socket bound", "link", n.link.Port, "queue", i, "frame size", n.cfg.FrameSize)
	}
	return nil
}

// plug gives the socket of a queue to the program, and tells all programs that the
// lane's engine runs.
func (n *NIC) plug(queue int, lane engine.Lane, fd int) error {
	if err := n.steer.SetSocket(queue, fd); err != nil {
		return err
	}
	for _, m := range n.allMaps() {
		if err := m.slots(uint16(lane)).Set(uint16(lane), fd); err != nil {
			return err
		}
	}
	return nil
}

func (n *NIC) makeEngines() error {
	ec := n.cfg.Engine
	ec.Ended = n.ends.add
	ec.Failed = func(err error) (keep bool) {
		if keep = n.set.several(); keep {
			n.running.Go(func() { n.lose(err) })
		}
		return keep
	}
	ec.AcceptPartial = n.cfg.Partial.accepts(n.link.Driver)
	ec.Unsummed = n.unsummed()
	for _, q := range n.queues {
		e, err := engine.New(q, n.set.dir, ec)
		if err != nil {
			return err
		}
		n.engines = append(n.engines, e)
	}
	return nil
}

// start starts the goroutines of the interface and begins to watch the kernel's
// messages.
func (n *NIC) start() error {
	n.run()
	return n.watch()
}

// run starts all goroutines that run until Close. lose can end the engines earlier.
func (n *NIC) run() {
	ctx, stop := context.WithCancel(context.Background())
	engines, stopEngines := context.WithCancelCause(ctx)
	n.stop = stopEngines
	n.undo.Add(func() error {
		stop()
		n.running.Wait()
		return n.dissolveAll()
	})
	for _, e := range n.engines {
		n.running.Go(func() {
			if err := e.Run(engines); err != nil {
				n.log.Error("engine stopped", "queue", e.Queue(), "err", err)
				n.lose(err)
			}
		})
	}
	n.running.Go(func() { n.reap(ctx) })
	n.running.Go(func() { n.shift(n.life) })
	n.running.Go(func() { n.guard(ctx) })
	n.running.Go(func() { n.watchStrays(ctx) })
}

// closeWait limits how long Close waits until the resets of its flows have been sent.
const closeWait = time.Second

// Close resets every connection, and removes everything from the interface that is not
// pinned. Close may be called twice.
func (n *NIC) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	n.die(ErrClosed)
	open := make([]*Flow, 0, len(n.flows))
	for _, f := range n.flows {
		open = append(open, f)
	}
	n.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	for _, f := range open {
		f.Abort(ctx)
	}
	for _, f := range open {
		select {
		case <-f.done:
		case <-ctx.Done():
		}
	}
	err := errors.Join(n.undo.Run(), n.set.left())
	n.log.Info("interface closed", "link", n.link.Name)
	return err
}

// dissolveAll removes the remaining flows when no engine runs any more. The program
// still steers, so that no segment reaches the placeholders.
func (n *NIC) dissolveAll() error {
	n.reapAll()
	var errs []error
	for _, f := range n.Flows() {
		errs = append(errs, n.dissolveLast(f))
	}
	return errors.Join(errs...)
}

// dissolveLast removes a remaining flow, unless HandBack has removed it meanwhile.
func (n *NIC) dissolveLast(f *Flow) error {
	f.moving.Lock()
	defer f.moving.Unlock()
	if n.flow(f.id) != f {
		return nil
	}
	f.finish(ErrClosed)
	defer n.drop(f)
	return f.dissolve()
}
