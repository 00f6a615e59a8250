// Package world is two engines, the simulated link between them, and virtual
// time: the stage for every test that needs two ends and no kernel.
package world

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/simnic"
)

// Config describes a world. The zero value works.
type Config struct {
	Link   simnic.Config
	Engine engine.Config                    // of both ends; Ended must be nil
	Edit   func(side int, c *engine.Config) // what differs between them; may be nil
	Flows  int                              // most flows at a time; 0 means 64

	// Arrive is called with every packet that arrives at a side, which it may
	// change but not make longer. nil: packets arrive as they are.
	Arrive func(side int, packet []byte)
}

// World is the two ends and their link. It belongs to one goroutine.
type World struct {
	Link    *simnic.Link
	Engines [2]*engine.Engine
	Ends    [2]map[engine.FlowID][]engine.End // what the engines said of ended flows

	now     clock.Instant
	dirs    [2]*engine.Directory
	kernels [2]*kernel
	keys    [2]map[engine.FlowID]bpf.FlowKey
	mtu     uint32
	next    uint16 // port of the next flow
}

// New makes a world at an arbitrary time.
func New(c Config) (*World, error) {
	link, err := simnic.New(c.Link)
	if err != nil {
		return nil, err
	}
	if c.Flows == 0 {
		c.Flows = 64
	}
	w := &World{Link: link, now: link.Now(), mtu: 1500, next: 40000}
	if c.Link.MTU != 0 {
		w.mtu = c.Link.MTU
	}
	for i, p := range []port.Port{link.A(), link.B()} {
		ec := c.Engine
		if c.Edit != nil {
			c.Edit(i, &ec)
		}
		ec.TCP.Seed = cmp.Or(ec.TCP.Seed, 1) // nothing here happens by chance
		w.Ends[i] = map[engine.FlowID][]engine.End{}
		w.keys[i] = map[engine.FlowID]bpf.FlowKey{}
		ec.Ended = func(e engine.End) { w.ended(i, e) }
		w.kernels[i] = &kernel{Port: p, open: map[bpf.FlowKey]bool{}}
		if c.Arrive != nil {
			w.kernels[i].arrive = func(packet []byte) { c.Arrive(i, packet) }
		}
		if w.dirs[i], err = engine.NewDirectory(c.Flows); err != nil {
			return nil, err
		}
		if w.Engines[i], err = engine.New(w.kernels[i], w.dirs[i], ec); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// ended notes that a flow has ended, and lets its segments go to the kernel
// when the engine needs them no longer.
func (w *World) ended(side int, e engine.End) {
	w.Ends[side][e.ID] = append(w.Ends[side][e.ID], e)
	if e.Gone {
		delete(w.kernels[side].open, w.keys[side][e.ID])
		delete(w.keys[side], e.ID)
		w.dirs[side].Free(e.ID)
	}
}

// SlabsLent is how many slabs the flows of each end hold.
func (w *World) SlabsLent() (n [2]int) {
	for i, d := range w.dirs {
		n[i] = d.SlabsLent()
	}
	return n
}

// Now is the world's time.
func (w *World) Now() clock.Instant { return w.now }

// Flow says how a connection between the two ends begins.
type Flow struct {
	V6           bool
	NoSACK       bool
	NoTimestamps bool
	Scale        uint8 // of both windows; 0 means 7
	ISN          [2]uint32
	Window       uint32                        // octets, promised by both; 0 means 64 KiB
	MSS          uint16                        // 0: what the link's MTU allows
	Edit         func(side int, st *tcp.State) // last changes; may be nil
}

// Conn is a connection of the world: its two flows.
type Conn struct {
	ID [2]engine.FlowID
}

// Connect makes a connection as if both ends had been taken over in the middle
// of its life, with nothing under way.
func (w *World) Connect(f Flow, a, b stream.ULP) (c Conn, err error) {
	addrs := w.addresses(f.V6)
	states := f.states(w.now, w.mtu)
	for side, ulp := range []stream.ULP{a, b} {
		if c.ID[side], err = w.install(side, addrs, states[side], ulp); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (w *World) addresses(v6 bool) (addrs [2]netip.AddrPort) {
	hosts := [2]string{"192.0.2.1", "192.0.2.2"}
	if v6 {
		hosts = [2]string{"2001:db8::1", "2001:db8::2"}
	}
	w.next++
	addrs[0] = netip.AddrPortFrom(netip.MustParseAddr(hosts[0]), w.next)
	addrs[1] = netip.AddrPortFrom(netip.MustParseAddr(hosts[1]), 5001)
	return addrs
}

// install does what a take-over does, without a kernel.
func (w *World) install(side int, addrs [2]netip.AddrPort, st tcp.State, ulp stream.ULP) (engine.FlowID, error) {
	key, head, err := flowOf(side, addrs)
	if err != nil {
		return 0, err
	}
	id, err := w.dirs[side].Reserve(key)
	if err != nil {
		return 0, err
	}
	w.kernels[side].open[key], w.keys[side][id] = true, key
	e := w.Engines[side]
	err = w.Do(side, func(ctx context.Context) error {
		if err := e.Park(ctx, id, key, nil); err != nil {
			return err
		}
		if err := w.dirs[side].Move(id, e.Lane()); err != nil {
			return err
		}
		return e.Install(ctx, id, st, head, ulp)
	})
	return id, err
}

// flowOf is the key of a side's flow and the headers that it sends.
func flowOf(side int, addrs [2]netip.AddrPort) (key bpf.FlowKey, head wire.HeaderTemplate, err error) {
	local, remote := addrs[side], addrs[1-side]
	if key, err = bpf.NewFlowKey(remote, local, 0); err != nil {
		return key, head, err
	}
	head, err = wire.NewHeaderTemplate(wire.HeaderFields{
		DstMAC: mac(1 - side), SrcMAC: mac(side), Src: local, Dst: remote, TTL: 64,
	})
	return key, head, err
}

func mac(side int) wire.MAC { return wire.MAC{2, 0, 0, 0, 0, byte(1 + side)} }

// Do runs fn, which calls the engine of one side from outside, while that
// engine works. Time stands still meanwhile.
func (w *World) Do(side int, fn func(context.Context) error) error {
	done := make(chan error)
	go func() { done <- fn(context.Background()) }()
	for {
		select {
		case err := <-done:
			return err
		default:
			w.Engines[side].Progress(w.now)
			runtime.Gosched() // fn may have no processor of its own
		}
	}
}

// Step takes the world to the next moment at which something happens, if that
// is not after limit, and reports whether there was one.
func (w *World) Step(limit clock.Instant) bool {
	w.Link.Advance(w.now)
	next := clock.Never
	for _, e := range w.Engines {
		at, _ := e.Progress(w.now)
		next = clock.Sooner(next, at)
	}
	next = clock.Sooner(next, w.Link.Next())
	if next == clock.Never || limit.Before(next) {
		return false
	}
	if w.now.Before(next) {
		w.now = next
	}
	return true
}

// Run lets the world go on until done says so. It fails when d has passed
// before, or when nothing is left that could happen.
func (w *World) Run(d time.Duration, done func() bool) error {
	limit := w.now.Add(d)
	for !done() {
		if !w.Step(limit) {
			return fmt.Errorf("after %v of virtual time: not done, and nothing happens within %v", w.now.Sub(1), d)
		}
	}
	return nil
}

// Pass lets d go by.
func (w *World) Pass(d time.Duration) {
	limit := w.now.Add(d)
	for w.Step(limit) {
	}
	w.now = limit
}

func (f Flow) states(now clock.Instant, mtu uint32) (states [2]tcp.State) {
	headers := uint16(40)
	if f.V6 {
		headers = 60
	}
	scale, window, mss := f.Scale, f.Window, f.MSS
	if scale == 0 {
		scale = 7
	}
	if window == 0 {
		window = 64 << 10
	}
	if mss == 0 {
		mss = uint16(mtu) - headers
	}
	for i := range states {
		una, nxt := seq.Num(f.ISN[i]), seq.Num(f.ISN[1-i])
		states[i] = tcp.State{
			At:     now,
			SndUna: una, SndNxt: una, SndWnd: window, SndWL1: nxt, MaxWnd: window,
			RcvNxt: nxt, RcvWnd: window, RcvWup: nxt,
			SndScale: scale, RcvScale: scale,
			MSS: mss, MTU: uint16(mtu), V6: f.V6,
			SACK: !f.NoSACK, Timestamps: !f.NoTimestamps, TSNow: 1000 * uint32(i+1),
			NoDelay: true,
		}
		if f.Edit != nil {
			f.Edit(i, &states[i])
		}
	}
	return states
}
