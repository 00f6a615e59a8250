package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/portable"
)

// Default times of an Offer.
const (
	DefaultStart = 15 * time.Second
	DefaultPause = 5 * time.Second
)

// goneWait is how long the old process waits for the end of a new process that it has
// aborted, before it kills the new process.
const goneWait = 2 * time.Second

// Offer is the old process's side of an upgrade. NICs must be set.
type Offer struct {
	// NICs are all open interfaces of the adapter.
	NICs []*nic.NIC

	// Freeze is called before the connections leave their engines, and Objects afterwards.
	// Objects returns what does not belong to one connection. Thaw is called if the
	// connections run on here after Freeze has returned nil. nil means no call.
	Freeze  func(context.Context) error
	Objects func(clock.Instant) ([]portable.Object, error)
	Thaw    func()

	// Early returns objects that the new process needs to open its adapter. nil means none.
	Early func() ([]portable.Object, error)

	Start time.Duration // how long the new process may take to prepare itself; 0 means DefaultStart
	Pause time.Duration // how long connections may be frozen before they run on here; 0 means DefaultPause

	// At, if set, is called at each step with the name of the message that comes next.
	At  func(step string)
	Log *slog.Logger // nil: no log
}

// Result says how an upgrade went.
type Result struct {
	PID     int           // the new process
	Flows   int           // connections that were handed over, including those in TIME-WAIT
	Lost    []string      // connections that the new process could not install, and why
	Frozen  time.Duration // from the first connection that left its engine until all ran in the new process
	Waiting time.Duration // how long the new process prepared itself

	Warnings []string // what else went wrong after the connections were handed over
}

// Run hands all connections over to the process at the other end of c, and closes c. When Run
// returns nil, the other process has them: upper layers and flows have got
// portable.ErrUpgraded, and the caller must close the interfaces, which leaves the programs to
// the other process.
//
// After an error all connections run here as before. If ctx ends before the point of no
// return, Run fails.
func (o *Offer) Run(ctx context.Context, c *net.UnixConn) (Result, error) {
	g := &giving{Offer: *o, link: link{conn: c}}
	if g.Log == nil {
		g.Log = slog.New(slog.DiscardHandler)
	}
	if g.Start == 0 {
		g.Start = DefaultStart
	}
	if g.Pause == 0 {
		g.Pause = DefaultPause
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	g.stopWatching = stop
	err := g.run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	c.Close()
	if err != nil {
		return Result{}, fmt.Errorf("upgrade: %w", err)
	}
	return g.result, nil
}

// giving is an Offer that runs.
type giving struct {
	Offer
	link
	stopWatching func() bool
	result       Result
	frozen       *nic.Frozen
	began        time.Time // time of Freeze
	sentObjects  int
}

func (g *giving) at(k kind) {
	g.Log.Debug("upgrade", "next", k.String(), "frozen", time.Since(g.began))
	if g.At != nil {
		g.At(k.String())
	}
}

func (g *giving) run(ctx context.Context) error {
	cred, err := peer(g.conn)
	if err != nil {
		return err
	}
	g.result.PID = int(cred.Pid)
	began := time.Now()
	if err := g.introduce(began); err != nil {
		g.abort(err)
		return err
	}
	g.result.Waiting = time.Since(began)
	if err := g.freeze(ctx); err != nil {
		g.abort(err)
		return err
	}
	if err := g.give(ctx); err != nil && !g.abort(err) {
		return errors.Join(err, g.thaw())
	}
	g.stopWatching()
	g.frozen.Leave(portable.ErrUpgraded)
	return g.finish()
}

// introduce hands the interfaces over, and waits until the new process is ready.
func (g *giving) introduce(now time.Time) error {
	if err := g.until(now.Add(g.Start)); err != nil {
		return err
	}
	var early []portable.Object
	if g.Early != nil {
		var err error
		if early, err = g.Early(); err != nil {
			return err
		}
	}
	g.at(kindHello)
	h := hello{Version: Version, PID: os.Getpid(), Layout: bpf.Layout(), Ports: len(g.NICs), Objects: len(early)}
	if err := g.send(kindHello, h, nil); err != nil {
		return err
	}
	for _, n := range g.NICs {
		if err := g.sendPort(n); err != nil {
			return err
		}
	}
	for i := range early {
		if err := g.sendObject(&early[i]); err != nil {
			return err
		}
	}
	g.at(kindReady)
	m, err := g.expect(kindReady, nil)
	if err != nil {
		return err
	}
	m.close()
	return nil
}

func (g *giving) sendPort(n *nic.NIC) error {
	g.at(kindPort)
	i, err := n.Hand()
	if err != nil {
		return err
	}
	defer i.Close()
	at := n.Link()
	return g.send(kindPort, portDoc{Name: at.Name, Index: at.Index, Netns: at.Netns, Program: i.Program, Claims: i.Claims}, nil, i.Files...)
}

func (g *giving) sendObject(o *portable.Object) error {
	if err := o.Check(); err != nil {
		return err
	}
	mono, err := monotonic()
	if err != nil {
		return err
	}
	g.sentObjects++
	return g.send(kindObject, objectDoc{Kind: o.Kind, Mono: mono}, [][]byte{o.Data}, o.Files...)
}

// freeze takes the connections out of their engines.
func (g *giving) freeze(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, g.Pause)
	defer cancel()
	if g.Freeze != nil {
		if err := g.Offer.Freeze(ctx); err != nil {
			return err
		}
	}
	g.began = time.Now()
	if g.frozen, err = g.NICs[0].Freeze(ctx); err != nil && g.Offer.Thaw != nil {
		g.Offer.Thaw()
	}
	return err
}

// thaw makes the connections run here again.
func (g *giving) thaw() error {
	err := g.frozen.Thaw()
	if g.Offer.Thaw != nil {
		g.Offer.Thaw()
	}
	g.Log.Info("upgrade given up, the connections run on here", "flows", g.frozen.Len(), "frozen", time.Since(g.began), "err", err)
	return err
}

// give gives the queues up, sends the connections, and commits. If it fails and abort returns
// false, the new process has nothing.
func (g *giving) give(ctx context.Context) error {
	if err := g.until(g.began.Add(g.Pause)); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := g.frozen.Release(ctx); err != nil { // comes first, because the kernel takes its time
		return err
	}
	if err := g.frozen.Each(g.sendFlow); err != nil {
		return err
	}
	g.sentObjects = 0
	if g.Objects != nil {
		list, err := g.Objects(clock.Now())
		if err != nil {
			return err
		}
		for i := range list {
			g.at(kindObject)
			if err := g.sendObject(&list[i]); err != nil {
				return err
			}
		}
	}
	g.at(kindComplete)
	if err := g.send(kindComplete, completeDoc{Flows: g.result.Flows, Objects: g.sentObjects}, nil); err != nil {
		return err
	}
	g.at(kindReleased)
	if err := g.send(kindReleased, nil, nil); err != nil {
		return err
	}
	g.at(kindBound)
	m, err := g.expect(kindBound, nil)
	if err != nil {
		return err
	}
	m.close()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	g.at(kindCommit)
	if err := g.send(kindCommit, nil, nil); err != nil {
		return err
	}
	g.at(kindTaken)
	if m, err = g.expect(kindTaken, nil); err != nil {
		return err
	}
	m.close()
	return nil
}

func (g *giving) sendFlow(d *nic.Departure, p *engine.Parted, hold *os.File) error {
	if hold != nil {
		defer hold.Close()
	}
	g.at(kindFlow)
	doc, data, files, err := encodeFlow(d, p, hold != nil)
	if err != nil {
		return err
	}
	if hold != nil {
		files = append([]*os.File{hold}, files...)
	}
	g.result.Flows++
	return g.send(kindFlow, doc, data, files...)
}

// finish waits until the connections run in the new process. They are not here any more,
// whatever happens.
func (g *giving) finish() error {
	g.at(kindDone)
	var done doneDoc
	err := g.until(time.Now().Add(g.Pause))
	if err == nil {
		var m *message
		if m, err = g.expect(kindDone, &done); err == nil {
			m.close()
		}
	}
	g.result.Frozen, g.result.Lost = time.Since(g.began), done.Lost
	if err != nil {
		g.result.Warnings = append(g.result.Warnings, fmt.Sprintf("the new process has not said that the connections run: %v", err))
	}
	return nil
}

// abort makes sure that the new process is gone or has given everything up. It tells the new
// process, and kills it if it does not close the connection. taken means that the new process
// has said meanwhile that it has the connections: they are not this process's any more.
func (g *giving) abort(why error) (taken bool) {
	g.stopWatching()
	g.until(time.Now().Add(goneWait))
	_ = g.send(kindAbort, reason{why.Error()}, nil) // an error means that the new process has gone, or is killed below
	if taken, ended := g.drain(); ended {
		return taken
	}
	cred, err := peer(g.conn)
	if err == nil && int(cred.Pid) == os.Getpid() {
		err = errors.New("it is this process")
	}
	if err == nil {
		g.Log.Warn("the new process does not end, and is killed", "pid", cred.Pid)
		err = unix.Kill(int(cred.Pid), unix.SIGKILL)
	}
	if err != nil {
		g.Log.Error("new process not killed", "err", err)
	}
	g.until(time.Now().Add(goneWait))
	taken, _ = g.drain()
	return taken
}

// drain reads what the new process has sent, until it says taken or closes the connection.
// ended is false if it has done neither in time.
func (g *giving) drain() (taken, ended bool) {
	for {
		m, err := g.receive()
		if errors.Is(err, errGone) {
			return false, true
		}
		if err != nil { // what it sends is no message
			_, err = io.Copy(io.Discard, g.conn)
			return false, err == nil
		}
		m.close()
		if m.kind == kindTaken {
			return true, true
		}
	}
}
