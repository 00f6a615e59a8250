package world

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/simnic"
)

// LanesConfig describes an adapter with several ports, and its peer.
type LanesConfig struct {
	Link          simnic.Config // configuration of each cable; Record must be nil
	Engine        engine.Config // configuration of all engines; Ended must be nil
	Ports, Queues int           // ports of the adapter, and queues of each port; 0 means 2
	Seed          uint64        // seed for the peer's choice of a cable for each packet
	Records       bool          // segments arrive with steering records
	// Owner returns the owner field of a record. If Owner is nil, the field is
	// bpf.NoOwner.
	Owner func(r *rand.Rand) uint16
}

// Lanes is an adapter with one cable for each lane, and a peer at the other ends of all
// cables. The peer chooses a cable at random for each packet. Only one goroutine may
// use Lanes.
type Lanes struct {
	Engines []*engine.Engine // the adapter's engines, by lane
	Peer    *engine.Engine
	Links   []*simnic.Link // the cables, by lane; side A is the adapter
	Dir     *engine.Directory

	now    clock.Instant
	queues int // queues of each port
	peer   *engine.Directory
	mtu    uint32
	next   uint16
	keys   [2]map[bpf.FlowKey]engine.FlowID
	ends   [2]map[engine.FlowID]engine.End
}

// NewLanes makes an adapter and its peer.
func NewLanes(c LanesConfig) (*Lanes, error) {
	c.Ports, c.Queues = cmp.Or(c.Ports, 2), cmp.Or(c.Queues, 2)
	w := &Lanes{now: 1, queues: c.Queues, mtu: cmp.Or(c.Link.MTU, 1500), next: 40000}
	luck := rand.New(rand.NewPCG(c.Seed, 0))
	if c.Records {
		c.Link.Record = func(packet []byte) []byte { return w.record(c, luck, packet) }
	}
	size := cmp.Or(c.Link.FrameSize, 4096)
	frames := cmp.Or(c.Link.Frames, 512)
	stride := uint64(2*frames) * uint64(size)
	var err error
	if w.Dir, err = engine.NewDirectory(64); err != nil {
		return nil, err
	}
	if w.peer, err = engine.NewDirectory(64); err != nil {
		return nil, err
	}
	c.Engine.TCP.Seed = cmp.Or(c.Engine.TCP.Seed, 1)
	for side := range w.keys {
		w.keys[side], w.ends[side] = map[bpf.FlowKey]engine.FlowID{}, map[engine.FlowID]engine.End{}
	}
	card, far := &arena{stride: stride}, &spray{arena: arena{stride: stride}, luck: luck}
	for i := range c.Ports * c.Queues {
		c.Link.Seed++
		link, err := simnic.New(c.Link)
		if err != nil {
			return nil, err
		}
		w.Links = append(w.Links, link)
		card.ports, far.ports = append(card.ports, link.A()), append(far.ports, link.B())
		p := &lanePort{Port: link.A(), arena: card, lane: port.Lane(i), number: uint16(i / c.Queues), queue: uint16(i % c.Queues)}
		ec := c.Engine
		ec.Ended = func(end engine.End) { w.ended(0, w.Dir, end) }
		e, err := engine.New(p, w.Dir, ec)
		if err != nil {
			return nil, err
		}
		w.Engines = append(w.Engines, e)
	}
	c.Engine.Ended = func(end engine.End) { w.ended(1, w.peer, end) }
	if w.Peer, err = engine.New(far, w.peer, c.Engine); err != nil {
		return nil, err
	}
	return w, engine.Join(w.Engines...)
}

// record returns the record that the XDP program would write in front of a packet. The
// record has the id of the flow, if the flow is known, and its owner.
func (w *Lanes) record(c LanesConfig, luck *rand.Rand, packet []byte) []byte {
	var p wire.Packet
	if wire.ParsePacket(packet, &p) != wire.OK || p.ICMP {
		return nil
	}
	k := &kernel{}
	key, err := bpf.NewFlowKey(k.addr(p.Src, p.TCP.SrcPort), k.addr(p.Dst, p.TCP.DstPort), 0)
	id, ok := w.keys[0][key]
	if err != nil || !ok {
		return nil
	}
	owner := uint16(bpf.NoOwner)
	if c.Owner != nil {
		owner = c.Owner(luck)
	}
	b := make([]byte, bpf.RecordLen) // struct stag_record of bpf/abi.h
	binary.NativeEndian.PutUint32(b, bpf.Magic)
	binary.NativeEndian.PutUint32(b[4:], uint32(id))
	b[8] = byte(bpf.KindBytes)
	binary.NativeEndian.PutUint16(b[10:], owner)
	return b
}

func (w *Lanes) ended(side int, dir *engine.Directory, end engine.End) {
	if _, ok := w.ends[side][end.ID]; !ok {
		w.ends[side][end.ID] = end
	}
	if end.Gone {
		dir.Free(end.ID)
	}
}

// Connect makes a connection as World.Connect does. The engine of lane owner owns the
// adapter's end. Before that engine takes the end, all engines of the owner's port park
// the connection.
func (w *Lanes) Connect(f Flow, owner int, a, b stream.ULP) (c Conn, err error) {
	at := &World{mtu: w.mtu, next: w.next}
	addrs := at.addresses(f.V6)
	w.next = at.next
	states := f.states(w.now, w.mtu)
	for side, ulp := range []stream.ULP{a, b} {
		key, head, err := flowOf(side, addrs)
		if err != nil {
			return c, err
		}
		dir, engines, e := w.Dir, w.Engines, w.Engines[owner]
		if side == 1 {
			dir, engines, e = w.peer, []*engine.Engine{w.Peer}, w.Peer
		}
		if c.ID[side], err = dir.Reserve(key); err != nil {
			return c, err
		}
		w.keys[side][key] = c.ID[side]
		err = w.Do(func(ctx context.Context) error {
			for _, x := range engines {
				if int(x.Lane())/w.queues == int(e.Lane())/w.queues { // x belongs to the same port as e
					if err := x.Park(ctx, c.ID[side], key, nil); err != nil {
						return err
					}
				}
			}
			if err := dir.Move(c.ID[side], e.Lane()); err != nil {
				return err
			}
			if err := e.Install(ctx, c.ID[side], states[side], head, ulp); err != nil {
				return err
			}
			for _, x := range engines {
				if x != e {
					if err := x.Forward(ctx, c.ID[side]); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// Do runs fn, which calls engines from outside, while all engines run. The world's time
// does not advance meanwhile.
func (w *Lanes) Do(fn func(context.Context) error) error {
	done := make(chan error)
	go func() { done <- fn(context.Background()) }()
	for {
		select {
		case err := <-done:
			return err
		default:
			for _, e := range w.all() {
				e.Progress(w.now)
			}
			runtime.Gosched() // lets fn run if there is only one processor
		}
	}
}

func (w *Lanes) all() []*engine.Engine {
	return append(w.Engines[:len(w.Engines):len(w.Engines)], w.Peer)
}

// Run runs the world until done returns true. It returns an error if that takes longer
// than d.
func (w *Lanes) Run(d time.Duration, done func() bool) error {
	for limit := w.now.Add(d); !done(); {
		next := clock.Never
		for _, l := range w.Links {
			l.Advance(w.now)
		}
		for range 2 { // passing a frame from engine to engine is no event of a link
			for _, e := range w.all() {
				at, _ := e.Progress(w.now)
				next = clock.Sooner(next, at)
			}
		}
		for _, l := range w.Links {
			next = clock.Sooner(next, l.Next())
		}
		if next == clock.Never || limit.Before(next) {
			return fmt.Errorf("not done, and nothing happens within %v", d)
		}
		w.now = max(w.now, next)
	}
	return nil
}

// Now returns the world's time.
func (w *Lanes) Now() clock.Instant { return w.now }

// arena lets each lane read the frames of all lanes. The addresses of lane i begin at i
// times stride.
type arena struct {
	stride uint64
	ports  []port.Port
}

func (a *arena) of(f port.Frame) (port.Port, port.Frame) {
	i := f.Addr / a.stride
	f.Addr %= a.stride
	return a.ports[i], f
}

// lanePort is one queue of the adapter.
type lanePort struct {
	port.Port
	arena         *arena
	lane          port.Lane
	number, queue uint16
	back          []port.Frame
}

func (p *lanePort) out(frames []port.Frame) {
	for i := range frames {
		frames[i].Addr += uint64(p.lane) * p.arena.stride
		frames[i].Home = p.lane
	}
}

// in converts frames to the addresses of the cable's end. It panics at a frame of
// another lane.
func (p *lanePort) in(frames []port.Frame) []port.Frame {
	p.back = p.back[:0]
	for _, f := range frames {
		if f.Addr/p.arena.stride != uint64(p.lane) {
			panic(fmt.Sprintf("a frame at %#x is given to lane %d", f.Addr, p.lane))
		}
		f.Addr %= p.arena.stride
		p.back = append(p.back, f)
	}
	return p.back
}

func (p *lanePort) Receive(dst []port.Frame) int {
	n := p.Port.Receive(dst)
	p.out(dst[:n])
	return n
}

func (p *lanePort) Take(dst []port.Frame) int {
	n := p.Port.Take(dst)
	p.out(dst[:n])
	return n
}

func (p *lanePort) Bytes(f port.Frame) []byte {
	at, f := p.arena.of(f)
	return at.Bytes(f)
}

func (p *lanePort) Record(f port.Frame) []byte {
	at, f := p.arena.of(f)
	return at.Record(f)
}

func (p *lanePort) Recycle(frames []port.Frame)  { p.Port.Recycle(p.in(frames)) }
func (p *lanePort) Free(frames []port.Frame)     { p.Port.Free(p.in(frames)) }
func (p *lanePort) Send(frames []port.Frame) int { return p.Port.Send(p.in(frames)) }
func (p *lanePort) InFlight(f port.Frame) bool   { return p.Port.InFlight(p.in([]port.Frame{f})[0]) }

func (p *lanePort) Limits() port.Limits {
	l := p.Port.Limits()
	l.Lane, l.Port, l.Queue = p.lane, p.number, p.queue
	return l
}

// spray is one queue over all cables. A frame leaves through the cable whose pool
// contains it.
type spray struct {
	arena
	luck *rand.Rand
	one  [1]port.Frame
}

func (s *spray) each(frames []port.Frame, do func(p port.Port, one []port.Frame)) {
	for _, f := range frames {
		p, f := s.of(f)
		s.one[0] = f
		do(p, s.one[:])
	}
}

func (s *spray) Receive(dst []port.Frame) (n int) {
	for i, p := range s.ports {
		k := p.Receive(dst[n:])
		for j := range k {
			dst[n+j].Addr += uint64(i) * s.stride
		}
		n += k
	}
	return n
}

func (s *spray) Take(dst []port.Frame) (n int) {
	for n < len(dst) {
		first := s.luck.IntN(len(s.ports))
		got := 0
		for k := 0; k < len(s.ports) && got == 0; k++ {
			i := (first + k) % len(s.ports)
			if got = s.ports[i].Take(dst[n : n+1]); got == 1 {
				dst[n].Addr += uint64(i) * s.stride
			}
		}
		if got == 0 {
			return n
		}
		n++
	}
	return n
}

func (s *spray) Bytes(f port.Frame) []byte {
	p, f := s.of(f)
	return p.Bytes(f)
}

func (s *spray) Record(f port.Frame) []byte { return nil }

func (s *spray) Recycle(frames []port.Frame) {
	s.each(frames, func(p port.Port, one []port.Frame) { p.Recycle(one) })
}

func (s *spray) Free(frames []port.Frame) {
	s.each(frames, func(p port.Port, one []port.Frame) { p.Free(one) })
}

func (s *spray) Send(frames []port.Frame) (n int) {
	s.each(frames, func(p port.Port, one []port.Frame) { n += p.Send(one) })
	return n
}

func (s *spray) Room() int {
	room := s.ports[0].Room()
	for _, p := range s.ports {
		room = min(room, p.Room())
	}
	return room
}

func (s *spray) InFlight(f port.Frame) bool {
	p, f := s.of(f)
	return p.InFlight(f)
}

func (s *spray) Flush() (err error) {
	for _, p := range s.ports {
		err = cmp.Or(err, p.Flush())
	}
	return err
}

func (s *spray) Arm(d time.Duration) (time.Duration, error) { return d, nil }
func (s *spray) Sleep(time.Duration) error                  { return simnic.ErrVirtualTime }
func (s *spray) SleepUntilWake(time.Duration) error         { return simnic.ErrVirtualTime }
func (s *spray) Wake()                                      {}

func (s *spray) Limits() port.Limits {
	l := s.ports[0].Limits()
	l.RxFrames *= uint32(len(s.ports))
	l.TxFrames *= uint32(len(s.ports))
	return l
}
