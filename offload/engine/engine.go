package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/visits"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// Config is what an engine is told. The zero value works.
type Config struct {
	// TCP is what every connection of this engine starts with. Each gets a Seed of
	// its own: by chance where this is 0, else from this and the flow's id.
	TCP tcp.Config

	// Spin is how long the engine keeps looking for work after it last found
	// some, before it sleeps in poll. Zero: it sleeps at once, which is right
	// where cores are few. Ignored by Progress.
	Spin time.Duration

	// AcceptPartial takes a TCP checksum field that holds only the sum of the
	// pseudo-header for a good one: what a veth peer with transmit checksum
	// offload leaves there. Both kinds are counted.
	AcceptPartial bool

	// Unsummed is what ends a connection whose peer sends nothing but segments
	// with such a field, without AcceptPartial. nil: stream.ErrUnsummed.
	Unsummed error

	// Table is what upper layers look STags up in: an invalidation waits for
	// the steps of this engine. nil: they use none.
	Table *tpt.Table

	// Ended is told about flows that ended, in the order in which they did. It runs
	// between steps, on the goroutine that stepped, while nobody else can step, and
	// must not block. nil: nobody is told.
	Ended func(End)

	// After runs after every step, on the goroutine that stepped, and must not
	// block; another one may step meanwhile. It tells the world what upper layers
	// have raised. nil: nothing does.
	After func()
}

// End says that a flow has ended, or that its last trace is gone.
type End struct {
	ID FlowID
	// Err is nil after an orderly close; see ULP.Fault.
	Err error
	// Gone: the flow needs its 4-tuple no longer (at once, or when TIME-WAIT
	// is over). A flow that closes actively ends twice: first with Gone false.
	Gone bool
	// Stats is what the connection counted, the first time that it ends.
	Stats tcp.Stats
}

// Engine moves the segments of its flows between one port and their
// upper-layer protocols. Everything it does happens in Progress, which one
// goroutine at a time runs: the holder of the queue's ownership token.
type Engine struct {
	// Fixed after New and Join.
	port   port.Port
	limits port.Limits
	queue  uint16
	lane   port.Lane
	lanes  lanes
	dir    *Directory
	cfg    Config
	reader *tpt.Reader // of Config.Table; nil without

	// Owned by the token's holder.
	now    clock.Instant
	flows  []*flow               // by index of the flow's id
	tuples map[bpf.FlowKey]*flow // for packets without a record
	open   int                   // flows that have a connection
	frames frames
	flight flight // how many transmit frames may be lent while flows wait
	timers timers
	dirty  []*flow      // to be served in this step
	retry  []*flow      // to be served again: their segments found no room
	line   line         // those that wait until they may fill frames
	more   bool         // some of them could go on at once
	batch  []port.Frame // arrivals of one step
	tx     outbox
	pkt    wire.Packet
	seg    tcp.Segment
	ends   []End
	news   *flow // parked flows of which this step has seen a first segment
	worked bool  // this step moved something
	rest   rest
	tapped []*tap.Ring // captures that see this step's packets
	count  Counters
	totals tcp.Stats // of connections, as far as they are accounted for

	ended atomic.Bool // every flow has ended, for good; set by the token's holder

	// Filled by any goroutine, emptied by the token's holder.
	mail  mail
	bells doorbells
	cmds  commands
	taps  tap.List

	token   atomic.Bool
	visits  visits.Book
	stopped chan struct{}
}

const (
	// batchLen is how many frames a step receives at most: few enough that
	// acknowledgements leave in time, enough to spread the cost of a step.
	batchLen = 128

	// leastFrames is how few receive frames a queue can do with.
	leastFrames = 64

	// reserve is how many transmit frames are kept back for segments without
	// payload and for retransmissions: they are what frees the others.
	reserve = 32

	// retryAfter is how soon flows that found no memory or no room are looked at
	// again when nothing else happens.
	retryAfter = 200 * time.Microsecond

	// retryMost is how soon at the latest, and vainMost after how many steps that
	// moved nothing: each makes the next look twice as late. Frames that silent peers
	// have come back by what arrives, if at all, which ends a sleep.
	retryMost = 10 * time.Millisecond
	vainMost  = 6

	// roomAfter is the same while the link has no room: before it has sent what it
	// has.
	roomAfter = 50 * time.Microsecond

	// stalledRetry is the same while the link is down.
	stalledRetry = 5 * time.Millisecond
)

// New makes the engine of one lane. The engines of one adapter share dir.
func New(p port.Port, dir *Directory, cfg Config) (*Engine, error) {
	l := p.Limits()
	switch {
	case l.TxFrames < 4*reserve:
		return nil, fmt.Errorf("queue %d has %d transmit frames: give it %d or more", l.Queue, l.TxFrames, 4*reserve)
	case l.RxFrames < leastFrames:
		return nil, fmt.Errorf("queue %d has %d receive frames: give it %d or more", l.Queue, l.RxFrames, leastFrames)
	case cfg.Spin < 0:
		return nil, errors.New("spin time is negative")
	}
	if cfg.Unsummed == nil {
		cfg.Unsummed = stream.ErrUnsummed
	}
	n := dir.Len()
	cfg.TCP.Rings = tcp.NewRings()
	return &Engine{
		port:    p,
		limits:  l,
		queue:   l.Queue,
		lane:    l.Lane,
		lanes:   lanes{first: l.Lane, span: 1},
		dir:     dir,
		cfg:     cfg,
		reader:  cfg.Table.Join(),
		flows:   make([]*flow, n),
		tuples:  make(map[bpf.FlowKey]*flow),
		timers:  timers{heap: make([]*flow, 0, n)},
		dirty:   make([]*flow, 0, n),
		retry:   make([]*flow, 0, n),
		line:    newLine(n),
		flight:  newFlight(pool(l)),
		batch:   make([]port.Frame, min(batchLen, l.RxFrames)),
		frames:  newFrames(p, l),
		ends:    make([]End, 0, n),
		bells:   newDoorbells(n),
		stopped: make(chan struct{}),
	}, nil
}

// Queue is the port's queue that this engine serves.
func (e *Engine) Queue() uint16 { return e.queue }

// Lane is the number of this engine in its adapter.
func (e *Engine) Lane() port.Lane { return e.lane }

// Step moves every octet that can move at time now, and reports when it next
// needs to run (clock.Never: not before something happens). It never blocks,
// allocates or locks, and runs only while the token is held.
func (e *Engine) Step(now clock.Instant) (next clock.Instant) {
	e.now, e.worked = now, false
	e.tx.room = 0 // asked for when first needed
	e.tapped = e.taps.Rings()
	e.more = false
	if len(e.lanes.engines) != 0 {
		e.frames.compare()
	}

	e.receive()
	e.hearOut(now)
	if len(e.lanes.engines) != 0 {
		e.takeMail()
	}
	e.bells.empty(e)
	for f := e.timers.expired(now); f != nil; f = e.timers.expired(now) {
		e.mark(f)
	}
	e.resume()
	for i := 0; i < len(e.dirty); i++ {
		f := e.dirty[i]
		f.dirty = false
		e.serve(f, e.allowance())
	}
	e.dirty = e.dirty[:0]
	e.takeTurns()

	e.frames.giveBack()
	e.flush()
	e.wakePeers()
	if e.worked {
		e.count.Steps++
		e.rest.vain = 0
	} else if e.rest.vain < vainMost {
		e.rest.vain++
	}
	return e.deadline()
}

// hearOut takes in what else has arrived when a timer is due: it may be what the
// timer waits for. It ends where the pool would, of which no frame is filled
// twice in a step: a flood holds timers up for one ring, and no longer.
func (e *Engine) hearOut(now clock.Instant) {
	begin := e.count.RxPackets
	for e.timers.next().Due(now) && e.count.RxPackets-begin < uint64(e.limits.RxFrames) {
		before := e.count.RxPackets
		if e.receive(); e.count.RxPackets == before {
			return
		}
	}
}

// mark puts f on the list of flows that this step serves.
func (e *Engine) mark(f *flow) {
	if !f.dirty {
		f.dirty = true
		e.dirty = append(e.dirty, f)
	}
}

// rung is called for every doorbell that rang.
func (e *Engine) rung(index int) {
	f := e.flows[index]
	if f == nil || f.conn == nil && !f.lingers {
		e.passBell(index)
		return
	}
	e.worked = true
	e.mark(f)
}

// serve lets f's upper layer and its connection do what they can, in the order
// of the data: received octets up, new octets down, segments out. New octets may
// fill so many frames.
func (e *Engine) serve(f *flow, frames int) {
	switch {
	case f.lingers:
		e.serveTimeWait(f)
		return
	case f.conn == nil:
		return
	}
	f.quota, f.wants, f.refused, f.short = frames, false, false, false
	if f.back != 0 {
		trip, least := f.conn.Trip()
		e.flight.acked(e.now, f.back, trip, least, e.line.n != 0)
		f.back = 0
	}
	if f.conn.Arrived() {
		f.ulp.Receive(e.now, f.conn)
	}
	if f.guests != 0 {
		f.conn.MoveOut(f)
	}
	if e.frames.scarce() {
		f.conn.Unburden()
	}
	f.ulp.Transmit(e.now, f.conn)
	f.conn.Transmit(e.now, f)
	for f.conn.Paused() {
		f.ulp.Transmit(e.now, f.conn)
		f.conn.Transmit(e.now, f)
	}
	if done, err := f.conn.Done(); done {
		e.finish(f, err)
		return
	}
	if f.refused && !f.stuck {
		f.stuck = true
		e.retry = append(e.retry, f)
	}
	if f.short {
		e.unload(f)
	}
	if f.wants {
		e.line.join(f)
	}
	e.timers.set(f, clock.Sooner(f.conn.Deadline(), f.ulp.Deadline()))
}

// flush tells the kernel about this step's packets. While the link is down
// the packets are lost, as on any link, and TCP retransmits them.
func (e *Engine) flush() {
	e.tx.queued = 0
	err := e.port.Flush()
	e.tx.stalled = err != nil
	if err != nil {
		e.count.FlushErrors++
	}
}

func (e *Engine) deadline() clock.Instant {
	if e.more {
		return e.now
	}
	next := e.timers.next()
	if len(e.retry) != 0 || e.line.n != 0 {
		wait := min(retryAfter<<e.rest.vain, retryMost)
		switch {
		case e.tx.stalled:
			wait = stalledRetry
		case e.tx.room <= 0:
			wait = roomAfter
		}
		next = clock.Sooner(next, e.now.Add(wait))
	}
	return next
}
