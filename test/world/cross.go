package world

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/simnic"
)

// CrossConfig describes two adapters with two links between them.
type CrossConfig struct {
	Links   [2]simnic.Config // configuration of each link; Record and Drop must be nil
	Engine  engine.Config    // configuration of all engines; Ended must be nil
	Queues  int              // queues of each port; 0 means 1
	Records bool             // segments arrive with steering records
}

// Cross is two adapters with two ports each. Link i leads from port i of one adapter to port
// i of the other. A connection sends through the lane that has it, and its segments arrive
// at the same lane of the other adapter, wherever the other end of the connection is. A link
// has a cable for each queue of its ports. Only one goroutine may use Cross.
type Cross struct {
	Engines [2][]*engine.Engine // by side and lane
	Cables  []*simnic.Link      // by lane
	Dirs    [2]*engine.Directory
	Alarm   clock.Instant // Run also stops to look at this time; clock.Never: no such time

	now    clock.Instant
	queues int
	mtu    uint32
	next   uint16
	mute   [2][2]bool // by link and sending side: packets vanish
	keys   [2]map[bpf.FlowKey]engine.FlowID
	ends   [2]map[engine.FlowID][]engine.End
}

// NewCross makes the adapters and their links.
func NewCross(c CrossConfig) (*Cross, error) {
	c.Queues = cmp.Or(c.Queues, 1)
	w := &Cross{now: 1, queues: c.Queues, mtu: cmp.Or(c.Links[0].MTU, 1500), next: 40000}
	c.Engine.TCP.Seed = cmp.Or(c.Engine.TCP.Seed, 1)
	for i := range 2 * c.Queues {
		lc := c.Links[i/c.Queues]
		lc.Seed += uint64(i)
		lc.Drop = func(from simnic.Side, _ []byte) bool { return w.mute[i/c.Queues][from] }
		if c.Records {
			lc.Record = w.record
		}
		cable, err := simnic.New(lc)
		if err != nil {
			return nil, err
		}
		w.Cables = append(w.Cables, cable)
	}
	for side := range w.Engines {
		if err := w.adapter(side, c); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// adapter makes the adapter of one side.
func (w *Cross) adapter(side int, c CrossConfig) (err error) {
	size, frames := cmp.Or(c.Links[0].FrameSize, 4096), max(cmp.Or(c.Links[0].Frames, 512), cmp.Or(c.Links[1].Frames, 512))
	memory := &arena{stride: uint64(2*frames) * uint64(size)}
	w.keys[side], w.ends[side] = map[bpf.FlowKey]engine.FlowID{}, map[engine.FlowID][]engine.End{}
	if w.Dirs[side], err = engine.NewDirectory(64); err != nil {
		return err
	}
	c.Engine.Ended = func(end engine.End) {
		w.ends[side][end.ID] = append(w.ends[side][end.ID], end)
		if end.Gone {
			w.Dirs[side].Free(end.ID)
		}
	}
	for i, cable := range w.Cables {
		own := [2]port.Port{cable.A(), cable.B()}[side]
		memory.ports = append(memory.ports, own)
		p := &lanePort{Port: own, arena: memory, lane: port.Lane(i), number: uint16(i / w.queues), queue: uint16(i % w.queues)}
		e, err := engine.New(p, w.Dirs[side], c.Engine)
		if err != nil {
			return err
		}
		w.Engines[side] = append(w.Engines[side], e)
	}
	return engine.Join(w.Engines[side]...)
}

// record returns the record that the XDP program would write in front of a packet, of either
// side.
func (w *Cross) record(packet []byte) []byte {
	for side := range w.keys {
		lanes := &Lanes{keys: w.keys}
		lanes.keys[0] = w.keys[side]
		if b := lanes.record(LanesConfig{}, nil, packet); b != nil {
			return b
		}
	}
	return nil
}

// Connect makes a connection as World.Connect does, whose ends are at the given lanes.
func (w *Cross) Connect(f Flow, lanes [2]int, ulps [2]stream.ULP) (c Conn, err error) {
	at := &World{mtu: w.mtu, next: w.next}
	addrs := at.addresses(f.V6)
	w.next = at.next
	states := f.states(w.now, w.mtu)
	for side, ulp := range ulps {
		key, head, err := flowOf(side, addrs)
		if err != nil {
			return c, err
		}
		if c.ID[side], err = w.Dirs[side].Reserve(key); err != nil {
			return c, err
		}
		w.keys[side][key] = c.ID[side]
		e := w.Engines[side][lanes[side]]
		err = w.Do(func(ctx context.Context) error {
			if err := e.Park(ctx, c.ID[side], key, nil); err != nil {
				return err
			}
			if err := w.Dirs[side].Move(c.ID[side], e.Lane()); err != nil {
				return err
			}
			return e.Install(ctx, c.ID[side], states[side], head, ulp)
		})
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// Move moves an end of a connection from lane to lane.
func (w *Cross) Move(side int, id engine.FlowID, from, to int, change engine.Change) error {
	return w.Do(func(ctx context.Context) error {
		_, _, err := engine.Move(ctx, id, w.Engines[side][from], w.Engines[side][to], change)
		return err
	})
}

// Ends returns the reports that a flow has ended.
func (w *Cross) Ends(side int, id engine.FlowID) []engine.End { return w.ends[side][id] }

// Link returns the link of a lane.
func (w *Cross) Link(lane int) int { return lane / w.queues }

// SetDown sets a link down or up. Both sides see it, and everything under way is lost.
func (w *Cross) SetDown(link int, down bool) {
	for i, c := range w.Cables {
		if w.Link(i) == link {
			c.SetDown(down)
		}
	}
}

// SetMute makes a link drop what one side sends, or not. Neither side sees it.
func (w *Cross) SetMute(link int, from simnic.Side, mute bool) { w.mute[link][from] = mute }

// Sent returns how many packets a side has sent over a link.
func (w *Cross) Sent(link int, from simnic.Side) (n uint64) {
	for i, c := range w.Cables {
		if w.Link(i) == link {
			n += c.Stats(from).Sent
		}
	}
	return n
}

// Do runs fn, which calls engines from outside, while all engines run. The world's time does
// not advance meanwhile.
func (w *Cross) Do(fn func(context.Context) error) error {
	done := make(chan error)
	go func() { done <- fn(context.Background()) }()
	for {
		select {
		case err := <-done:
			return err
		default:
			w.progress()
			runtime.Gosched() // lets fn run if there is only one processor
		}
	}
}

// progress lets all engines run a step. It returns when the next one must run.
func (w *Cross) progress() (next clock.Instant) {
	for _, side := range w.Engines {
		for _, e := range side {
			at, _ := e.Progress(w.now)
			next = clock.Sooner(next, at)
		}
	}
	return next
}

// Run runs the world until done returns true. It returns an error if that takes longer than
// d.
func (w *Cross) Run(d time.Duration, done func() bool) error {
	for limit := w.now.Add(d); !done(); {
		for _, c := range w.Cables {
			c.Advance(w.now)
		}
		w.progress()
		next := w.progress() // passing a frame from engine to engine is no event of a link
		for _, c := range w.Cables {
			next = clock.Sooner(next, c.Next())
		}
		if w.now < w.Alarm {
			next = clock.Sooner(next, w.Alarm)
		}
		if next == clock.Never || limit.Before(next) {
			if done() {
				break
			}
			return fmt.Errorf("not done, and nothing happens within %v", d)
		}
		w.now = max(w.now, next)
	}
	return nil
}

// Pass runs the world for d.
func (w *Cross) Pass(d time.Duration) {
	end := w.now.Add(d)
	_ = w.Run(d, func() bool { return false })
	w.now = max(w.now, end)
}

// Now returns the world's time.
func (w *Cross) Now() clock.Instant { return w.now }

// Returned returns an error if frames or slabs are in use.
func (w *Cross) Returned() error {
	for i, c := range w.Cables {
		for _, s := range []simnic.Side{simnic.A, simnic.B} {
			if rx, tx := c.Lent(s); rx != 0 || tx > 64 {
				return fmt.Errorf("lane %d, side %v: %d receive and %d transmit frames have not come home", i, s, rx, tx)
			}
		}
	}
	for side, d := range w.Dirs {
		if n := d.SlabsLent(); n != 0 {
			return fmt.Errorf("side %d: %d slabs are lent", side, n)
		}
	}
	return nil
}

// EndedOnce returns an error unless a flow has ended in order, once, and nothing of it is
// left.
func (w *Cross) EndedOnce(side int, id engine.FlowID) error {
	ends := w.ends[side][id]
	for i, e := range ends {
		if e.Err != nil || e.Gone != (i == len(ends)-1) || i > 1 {
			return fmt.Errorf("side %d: the ends of the connection are %+v", side, ends)
		}
	}
	if len(ends) == 0 {
		return fmt.Errorf("side %d: the connection has not ended", side)
	}
	return nil
}
