package nic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/undo"
)

// ErrClosed is what a NIC answers after Close.
var ErrClosed = errors.New("the interface has been closed")

// NIC is one network interface with everything that stag puts on it: the
// steering program, a socket and an engine for every receive queue, and the
// flows that were taken over, with their ways. It is safe for concurrent use.
type NIC struct {
	// Fixed after Open.
	cfg     Config
	net     *loader.Net
	link    loader.Link
	steer   *loader.Steering
	queues  []*afxdp.Queue
	engines []*engine.Engine
	dir     *engine.Directory
	grace   *handoff.Grace
	pace    *pace
	diag    *handoff.Diagnosis
	hops    *hops
	log     *slog.Logger
	undo    undo.Stack
	strays  strays

	running sync.WaitGroup // engines, reaper, watcher
	ends    *endQueue
	freed   chan struct{} // holds a token when a flow's id may have been freed

	life context.Context // ends when Close begins, with ErrClosed, or when the interface is lost
	die  context.CancelCauseFunc

	stop   context.CancelCauseFunc // ends the engines
	losing sync.Once

	mu     sync.Mutex // guards what follows
	flows  map[engine.FlowID]*Flow
	closed bool
}

// Open makes the interface ready to take connections over. It belongs to the
// network namespace of the calling thread, and stays bound to it. It needs
// CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, and CAP_IPC_LOCK or enough memlock.
//
// A program that `stag load` has put there is adopted, and stays when the NIC
// is closed. What else is on the interface is left alone: a foreign XDP program,
// or a queue that another process owns, is an error of package loader or afxdp.
func Open(cfg Config) (*NIC, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("open interface: %w", err)
	}
	n := &NIC{cfg: cfg, log: cfg.Log, grace: new(handoff.Grace), pace: newPace(unheardMost), ends: newEndQueue(), freed: make(chan struct{}, 1), flows: map[engine.FlowID]*Flow{}}
	n.life, n.die = context.WithCancelCause(context.Background())
	if err := n.open(); err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Link, errors.Join(err, n.undo.Run()))
	}
	n.log.Info("interface opened", "link", n.link.Name, "path", n.Path().String())
	return n, nil
}

func (n *NIC) open() (err error) {
	if n.net, err = loader.Open(); err != nil {
		return err
	}
	n.undo.Add(n.net.Close)
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
	n.hops = newHops(n.net, n.link, n.log, n.cfg.Diverted)
	for _, step := range []func() error{n.checkQueues, n.checkTags, n.claim, n.attach, n.openQueues, n.clear, n.startEngines, n.watch} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkQueues makes sure that every receive queue gets an engine: a segment
// that arrives at a queue without one would be lost.
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

// checkTags makes sure that the program sees the tags by which it is to know
// connections.
func (n *NIC) checkTags() error {
	if n.cfg.VLAN == 0 {
		return nil
	}
	return n.net.CheckTags(n.link)
}

// claim records us as the owner of every queue.
func (n *NIC) claim() error {
	loader.SweepClaims()
	for q := range n.cfg.Queues {
		c, err := loader.NewClaim(n.link, q)
		if err != nil {
			return err
		}
		n.undo.Add(c.Close)
		n.log.Debug("queue claimed", "link", n.link.Port, "queue", q)
	}
	return nil
}

// attach puts the program on the interface, or adopts the one that `stag load`
// has put there.
func (n *NIC) attach() (err error) {
	n.steer, err = loader.Adopt(n.link.Port)
	if errors.Is(err, loader.ErrNotPinned) {
		n.steer, err = loader.Load(loader.Options{
			Link:     n.link.Port,
			Generic:  n.cfg.Generic,
			MaxFlows: uint32(cmp.Or(n.cfg.MaxFlows, defaultFlows)),
			Queues:   n.cfg.Queues,
		})
	}
	if err != nil {
		return err
	}
	n.undo.Add(n.steer.Close)
	n.log.Debug("program is there", "link", n.link.Port, "program", n.steer.ProgID(), "mode", n.steer.Mode().String(), "room for flows", n.steer.MaxFlows())
	return n.makeRoom()
}

// makeRoom makes the directory of flows. An adopted program has room for as many
// as it was loaded for.
func (n *NIC) makeRoom() (err error) {
	room := int(n.steer.MaxFlows())
	if n.cfg.MaxFlows == 0 {
		n.cfg.MaxFlows = min(defaultFlows, room)
	}
	if n.cfg.MaxFlows > room {
		return fmt.Errorf("%d flows asked for, and stag was loaded on %s with room for %d: ask for fewer, or stag unload %s and stag load %s --max-flows %d",
			n.cfg.MaxFlows, n.link.Port, room, n.link.Port, n.link.Port, n.cfg.MaxFlows)
	}
	n.dir, err = engine.NewDirectory(n.cfg.MaxFlows)
	return err
}

// clear removes the flows that an engine before us has left in the program: their
// packets are the kernel's again, which resets the peers. Every queue is ours by
// now, so nobody runs them.
func (n *NIC) clear() error {
	if n.steer.Instance() == "" {
		return nil
	}
	left, err := n.steer.Clear()
	n.log.Info("program adopted", "link", n.link.Port, "instance", n.steer.Instance(), "program", n.steer.ProgID(), "flows removed", left)
	return err
}

// openQueues makes the arena and a socket for every queue, and puts the
// sockets where the program looks for them.
func (n *NIC) openQueues() error {
	qc := afxdp.Config{
		Ifindex:   n.link.PortIndex,
		IfName:    n.link.Port,
		FrameSize: n.cfg.FrameSize,
		RxFrames:  n.cfg.RxFrames,
		TxFrames:  n.cfg.TxFrames,
		ZeroCopy:  n.cfg.ZeroCopy,
	}
	size, err := qc.RegionSize()
	if err != nil {
		return err
	}
	arena, err := afxdp.NewArena(size * uint64(n.cfg.Queues))
	if err != nil {
		return err
	}
	n.undo.Add(arena.Close)
	for i := range n.cfg.Queues {
		region, err := arena.Cut(size)
		if err != nil {
			return err
		}
		qc.Queue, qc.Lane = uint16(i), engine.Lane(i)
		q, err := afxdp.Open(qc, region)
		if err != nil {
			return err
		}
		n.undo.Add(q.Close)
		n.queues = append(n.queues, q)
		if err := n.steer.SetSocket(i, q.FD()); err != nil {
			return err
		}
		n.log.Debug("socket bound", "link", n.link.Port, "queue", i, "frame size", qc.FrameSize)
	}
	return nil
}

func (n *NIC) startEngines() error {
	ec := n.cfg.Engine
	ec.Ended = n.ends.add
	ec.AcceptPartial = n.cfg.Partial.accepts(n.link.Driver)
	ec.Unsummed = n.unsummed()
	for _, q := range n.queues {
		e, err := engine.New(q, n.dir, ec)
		if err != nil {
			return err
		}
		n.engines = append(n.engines, e)
	}
	if len(n.engines) > 1 {
		if err := engine.Join(n.engines...); err != nil {
			return err
		}
	}
	n.run()
	return nil
}

// run starts everything that runs until Close. The engines can end before, by
// lose.
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
	n.running.Go(func() { n.guard(ctx) })
	n.running.Go(func() { n.watchStrays(ctx) })
}

// closeWait bounds how long Close waits for the resets of its flows to leave.
const closeWait = time.Second

// Close resets every connection, and takes everything off the interface again
// but what is pinned. It may be called twice.
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
	err := n.undo.Run()
	n.log.Info("interface closed", "link", n.link.Name)
	return err
}

// dissolveAll takes away what is left of the flows when no engine runs any
// more. The program still steers, so nothing reaches the placeholders.
func (n *NIC) dissolveAll() error {
	n.reapAll()
	var errs []error
	for _, f := range n.Flows() {
		f.finish(ErrClosed)
		errs = append(errs, f.dissolve())
		n.drop(f)
	}
	return errors.Join(errs...)
}
