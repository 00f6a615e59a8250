// Package world connects two engines by a simulated link in virtual time. It is for
// every test that needs two ends and no kernel.
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

// Config describes a world. The zero value selects the defaults.
type Config struct {
	Link   simnic.Config
	Engine engine.Config                    // configuration of both ends; Ended must be nil
	Edit   func(side int, c *engine.Config) // function that changes the configuration of one end; may be nil
	Flows  int                              // largest number of flows at the same time; 0 means 64

	// Arrive is called with every packet that arrives at a side. Arrive may change the
	// packet, but must not make it longer. Arrive may be nil.
	Arrive func(side int, packet []byte)
}

// World is the two ends and their link. Only one goroutine may use it.
type World struct {
	Link    *simnic.Link
	Engines [2]*engine.Engine
	Ends    [2]map[engine.FlowID][]engine.End // the engines' reports of ended flows

	now     clock.Instant
	dirs    [2]*engine.Directory
	kernels [2]*kernel
	keys    [2]map[engine.FlowID]bpf.FlowKey
	mtu     uint32
	next    uint16 // TCP port of the next flow
}

// New makes a world without connections.
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
		ec.TCP.Seed = cmp.Or(ec.TCP.Seed, 1) // a world uses no random numbers of the system
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

// ended records that a flow has ended. When the engine no longer needs the flow's
// segments, ended lets them go to the kernel.
func (w *World) ended(side int, e engine.End) {
	w.Ends[side][e.ID] = append(w.Ends[side][e.ID], e)
	if e.Gone {
		delete(w.kernels[side].open, w.keys[side][e.ID])
		delete(w.keys[side], e.ID)
		w.dirs[side].Free(e.ID)
	}
}

// SlabsLent returns how many slabs the flows of each end hold.
func (w *World) SlabsLent() (n [2]int) {
	for i, d := range w.dirs {
		n[i] = d.SlabsLent()
	}
	return n
}

// Now returns the world's time.
func (w *World) Now() clock.Instant { return w.now }

// Flow describes the initial state of a connection between the two ends.
type Flow struct {
	V6           bool
	NoSACK       bool
	NoTimestamps bool
	Scale        uint8 // window scale of both ends; 0 means 7
	ISN          [2]uint32
	Window       uint32                        // octets of both ends' initial windows; 0 means 64 KiB
	MSS          uint16                        // 0 means the MSS of the link's MTU
	Edit         func(side int, st *tcp.State) // function that makes the last changes; may be nil
}

// Conn is the two flows of one connection.
type Conn struct {
	ID [2]engine.FlowID
}

// Connect makes an established connection with no segment in flight, as if both ends
// had just been taken over.
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

// install does the same as a take-over, without a kernel.
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

// flowOf returns the key of a side's flow and the headers of the segments that this
// side sends.
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

// Do runs fn, which calls the engine of one side from outside, while that engine runs.
// The world's time does not advance meanwhile.
func (w *World) Do(side int, fn func(context.Context) error) error {
	done := make(chan error)
	go func() { done <- fn(context.Background()) }()
	for {
		select {
		case err := <-done:
			return err
		default:
			w.Engines[side].Progress(w.now)
			runtime.Gosched() // lets fn run if there is only one processor
		}
	}
}

// Step advances the world to its next event. It returns false, and does nothing, if
// there is no event up to limit.
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

// Run runs the world until done returns true. It returns an error if that takes longer
// than d, or if no event is left.
func (w *World) Run(d time.Duration, done func() bool) error {
	limit := w.now.Add(d)
	for !done() {
		if !w.Step(limit) {
			return fmt.Errorf("after %v of virtual time: not done, and nothing happens within %v", w.now.Sub(1), d)
		}
	}
	return nil
}

// Pass runs the world for d.
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
