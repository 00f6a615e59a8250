package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/upgrade"
)

// HandOver says how an adapter is handed over to another process. The zero value works.
type HandOver struct {
	// Stop is called when the other process is ready, before the adapter stands still. The
	// program must finish what it does with the completions that it has polled, and must
	// neither poll nor post any more when Stop returns: what it has learned from them is then
	// in Program. ctx ends when the hand-over fails. Resume is called if the program continues
	// here after Stop has returned nil. nil means that nothing is to be stopped.
	Stop   func(ctx context.Context) error
	Resume func()

	// Program returns what the program itself hands over. HandOver calls it when the adapter
	// stands still: no completion comes, and none can be polled. Program must not call the
	// adapter, because calls that change something, and Polls, wait until the end of the
	// hand-over. An error ends the hand-over. nil means nothing.
	Program func() (Bequest, error)

	Start time.Duration // how long the other process may take to prepare itself; 0 means 15 s
	Pause time.Duration // how long the connections may stand still; 0 means 5 s
}

// Bequest is what the program hands over for itself.
type Bequest struct {
	Data []byte // state of the program, at most 60 MiB

	// Files are descriptors, at most 64. The program still owns its own, and the other process
	// gets duplicates.
	Files []*os.File
}

// HandedOver says how a hand-over went.
type HandedOver struct {
	PID         int           // the process that has the connections now
	Connections int           // connections that were handed over, including those in TIME-WAIT
	Lost        []string      // connections that the other process could not continue, and why
	Frozen      time.Duration // how long no process ran the connections
	Prepared    time.Duration // how long the other process prepared itself, while the connections ran
}

// HandOver hands everything of the adapter over to the process at the other end of c (a
// stream socket, network "unix"), which
// must call Succeed, and closes c: connections, protection domains, regions with their
// memory and their STags, windows, queues with their work requests and completions, QPs
// with their numbers, and listening sockets. The peers notice nothing but a pause: no
// connection is reset, and no message is lost or repeated.
//
// Each work request that was posted before completes exactly once: its completion is polled
// either here, before the hand-over, or in the other process. Calls that change objects,
// posts, Polls and Waits wait meanwhile. After a hand-over they fail with ErrHandedOver, and
// Poll finds nothing. The program must then end its use of the memory of its regions, which
// the other process uses, and call Close.
//
// After an error everything continues here. HandOver fails at once, before anything stands
// still, if an object cannot go to another process: the error names it. These are regions
// over memory that is not of AllocMR, regions with page lists (RegMRPages), shared ones
// (RegSharedMR) and those of ReserveMR; queues in memory that another process maps (Rings), and
// bells; and adapters with KernelPort or a MemoryGroup, or
// that were opened without Config.Upgrade. HandOver waits for attempts to connect, and for
// requests of peers that the program has not answered. If they take longer than o.Pause,
// HandOver fails.
//
// These stay behind, and the new program makes them itself: contexts, handlers and
// completion channels (Inherit), captures, events that nobody has read, and the counters of
// closed QPs.
func (a *Adapter) HandOver(ctx context.Context, c *net.UnixConn, o HandOver) (HandedOver, error) {
	if err := a.movable(); err != nil {
		c.Close()
		return HandedOver{}, fmt.Errorf("hand over: %w", err)
	}
	if !a.handing.CompareAndSwap(nil, &o) {
		c.Close()
		return HandedOver{}, errors.New("hand over: the adapter is being handed over already")
	}
	defer a.handing.Store(nil)
	r, err := a.device.Offer(ctx, c, adapter.Offering{
		Objects: o.objects,
		Offer:   upgrade.Offer{Start: o.Start, Pause: o.Pause},
	})
	if err != nil {
		return HandedOver{}, fmt.Errorf("hand over: %w", err)
	}
	return HandedOver{PID: r.PID, Connections: r.Flows, Lost: r.Lost, Frozen: r.Frozen, Prepared: r.Waiting}, nil
}

// Restart starts the program of this process once more, with the same arguments, and hands
// the adapter over to the new process, which finds this one by Predecessor. The executable
// is the one that is at the same path now. progress, if not nil, gets a text for each step.
// The errors are those of HandOver, and those of starting the process.
func (a *Adapter) Restart(ctx context.Context, o HandOver, progress func(step string)) (HandedOver, error) {
	if err := a.movable(); err != nil {
		return HandedOver{}, fmt.Errorf("hand over: %w", err)
	}
	if progress != nil {
		progress("starting the new process")
	}
	var h HandedOver
	_, err := upgrade.Restart(ctx, func(ctx context.Context, c *net.UnixConn) (upgrade.Result, error) {
		if progress != nil {
			progress("handing the connections over")
		}
		var err error
		h, err = a.HandOver(ctx, c, o)
		return upgrade.Result{}, err
	})
	return h, err
}

// Predecessor connects to the process that has started this one by Restart. It returns nil
// if none has: then call Open, otherwise Succeed.
func Predecessor(ctx context.Context) (*net.UnixConn, error) { return upgrade.Predecessor(ctx) }

// stop calls Stop. resume calls Resume if Stop has returned nil.
func (o *HandOver) stop(ctx context.Context) error {
	if o.Stop != nil {
		if err := o.Stop(ctx); err != nil {
			return fmt.Errorf("stop the program: %w", err)
		}
	}
	return nil
}

func (o *HandOver) resume() {
	if o.Resume != nil {
		o.Resume()
	}
}

// bequestKind is the kind of the object of HandOver.Program.
const bequestKind = "rdma.program/1"

// objects returns the program's object. A program that hands nothing over has an empty one.
func (o *HandOver) objects(clock.Instant) ([]portable.Object, error) {
	var b Bequest
	if o.Program != nil {
		var err error
		if b, err = o.Program(); err != nil {
			return nil, err
		}
	}
	return []portable.Object{{Kind: bequestKind, Data: b.Data, Files: b.Files}}, nil
}

// errStays is the reason why something cannot be handed over.
var errStays = errors.New("cannot be handed over")

// movable returns an error that names an object of the adapter that cannot be handed over.
func (a *Adapter) movable() error {
	switch {
	case a.cfg.KernelPort:
		return fmt.Errorf("the adapter %w: the kernel's TCP runs its connections", errStays)
	case a.cfg.MemoryGroup != "":
		return fmt.Errorf("the adapter %w: it shares memory with other processes (MemoryGroup %s)", errStays, a.cfg.MemoryGroup)
	case a.device.Heap().File() == nil:
		return fmt.Errorf("the adapter %w: it was opened without Config.Upgrade, so that its region heap is no file", errStays)
	}
	if what := a.inForeignMemory(); what != "" {
		return fmt.Errorf("%s %w: another process has its memory mapped", what, errStays)
	}
	for _, m := range listed(a, &a.objects.mrs) {
		if why := m.stays(); why != "" && !m.closed.Load() {
			return fmt.Errorf("region %v of PD %d %w: %s", m.LKey(), m.pd.Number(), errStays, why)
		}
	}
	return nil
}

// stays returns why the region cannot be handed over, or "".
func (m *MR) stays() string {
	switch {
	case m.lease != nil:
		return "it is of ReserveMR"
	case m.pages != nil:
		return "it has a page list, or shares that of another region"
	case m.size != 0 && m.part == nil:
		return "its memory is not of AllocMR, and so no other process can map it"
	case m.size != 0 && !m.part.Of(m.pd.adapter.device.Heap()):
		return "its memory is of another adapter"
	}
	return ""
}
