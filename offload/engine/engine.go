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

// Config is the configuration of an engine. The zero value works.
type Config struct {
	// TCP is the initial configuration of every connection of this engine. Each
	// connection gets a Seed of its own. The connection's Seed is random if this Seed
	// is 0. Otherwise it is derived from this Seed and the flow's id.
	TCP tcp.Config

	// Spin is how long the engine looks for work after it last found some, before it
	// sleeps in poll. With zero it sleeps at once, which is right on a machine with few
	// cores. Progress ignores Spin.
	Spin time.Duration

	// AcceptPartial accepts a TCP checksum field that holds only the sum of the
	// pseudo-header. A veth peer with transmit checksum offload sends such segments.
	// Accepted and refused segments of this kind are both counted.
	AcceptPartial bool

	// Unsummed is the error that ends a connection whose peer sends only segments that
	// need AcceptPartial, if AcceptPartial is not set. nil means
	// stream.ErrUnsummed.
	Unsummed error

	// Table is the table in which upper layers look STags up. An invalidation in the
	// table waits for the steps of this engine. nil means that upper layers use no
	// table.
	Table *tpt.Table

	// Ended is called for flows that have ended, in the order of their ends. Ended runs
	// between steps, on the goroutine that stepped, while no other goroutine can step.
	// Ended must not block. nil means no call.
	Ended func(End)

	// Failed is called when the port has failed. If Failed returns true, the engine runs
	// no connection any more, and keeps the connections until the context of Run ends, so
	// that Move can give them to the engine of another port. Otherwise all connections
	// end at once. Failed runs on the goroutine of Run and must not wait for the engine.
	// nil means false.
	Failed func(error) (keep bool)

	// After runs after every step, on the goroutine that stepped. Another goroutine may
	// step meanwhile. After delivers the signals that upper layers have raised. After
	// must not block. nil means no call.
	After func()
}

// End says that a flow has ended, or that nothing of it is left.
type End struct {
	ID FlowID
	// Err is nil after an orderly close. Otherwise it is the error that ULP.Fault has
	// got.
	Err error
	// Gone says that the flow no longer needs its 4-tuple: at once, or when TIME-WAIT
	// is over. A flow that closes actively ends twice, the first time with Gone false.
	Gone bool
	// Stats has the connection's counters. Stats is set the first time that the flow
	// ends.
	Stats tcp.Stats
}

// Engine moves the segments of its flows between one port and the upper-layer
// protocols. Progress does all of this. One goroutine at a time runs Progress: the
// holder of the queue's token.
type Engine struct {
	// New and Join set these fields, and they never change.
	port   port.Port
	limits port.Limits
	queue  uint16
	lane   port.Lane
	lanes  lanes
	dir    *Directory
	cfg    Config
	reader *tpt.Reader // reader of Config.Table; nil without a table

	// The token's holder owns these fields.
	now    clock.Instant
	flows  []*flow               // flows by index of the flow's id
	tuples map[bpf.FlowKey]*flow // flows by key, for packets without a record
	open   int                   // number of flows that have a connection
	frames frames
	flight flight // limit of lent transmit frames while flows wait
	timers timers
	dirty  []*flow      // flows to serve in this step
	retry  []*flow      // flows to serve again, because their segments found no room
	line   line         // flows that wait for their turn to fill frames
	more   bool         // a flow in line could continue at once
	batch  []port.Frame // arrivals of one step
	tx     outbox
	pkt    wire.Packet
	seg    tcp.Segment
	ends   []End
	news   *flow // list of parked flows whose first segment has arrived in this step
	worked bool  // this step has moved something
	rest   rest
	tapped []*tap.Ring // captures that get this step's packets
	count  Counters
	totals tcp.Stats // sums of the counters of connections, as far as they have been added

	astray atomic.Bool // almost all segments of a flow arrive at another port; TakeAstray clears it

	ended atomic.Bool // no step runs any more; the token's holder sets it

	// Any goroutine fills these fields. The token's holder empties them.
	mail      mail
	doorbells doorbells
	cmds      commands
	taps      tap.List

	token   atomic.Bool
	visits  visits.Book
	stopped chan struct{}
	halted  chan struct{} // holds a token when a halted engine has commands
}

const (
	// batchLen is the largest number of frames that a step receives. batchLen is small
	// enough for acknowledgements to be sent in time, and large enough to spread the
	// cost of a step.
	batchLen = 128

	// leastFrames is the smallest number of receive frames of a queue.
	leastFrames = 64

	// reserve is how many transmit frames are kept for segments without payload and for
	// retransmissions. Such segments make the peer acknowledge, which frees the other
	// frames.
	reserve = 32

	// retryAfter is how soon flows that found no memory or no room are served again if
	// nothing else happens.
	retryAfter = 200 * time.Microsecond

	// retryMost is the upper limit of the time before a retry. The time starts at
	// retryAfter. Each step that moved nothing doubles it, for at most vainMost steps. A
	// late retry is harmless for frames that silent peers have not acknowledged: such
	// frames come back only when a packet arrives, and an arrival ends the sleep.
	retryMost = 10 * time.Millisecond
	vainMost  = 6

	// roomAfter is the time before a retry while the transmit ring has no room.
	// roomAfter is shorter than the time that the link needs for the packets in the
	// ring.
	roomAfter = 50 * time.Microsecond

	// stalledRetry is the time before a retry while the link is down.
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
	e := &Engine{
		port:      p,
		limits:    l,
		queue:     l.Queue,
		lane:      l.Lane,
		lanes:     lanes{first: l.Lane, span: 1},
		dir:       dir,
		tx:        outbox{sums: l.Sums},
		cfg:       cfg,
		reader:    cfg.Table.Join(),
		flows:     make([]*flow, n),
		tuples:    make(map[bpf.FlowKey]*flow),
		timers:    timers{heap: make([]*flow, 0, n)},
		dirty:     make([]*flow, 0, n),
		retry:     make([]*flow, 0, n),
		line:      line{clients: map[uint32]*group{}},
		flight:    newFlight(pool(l)),
		batch:     make([]port.Frame, min(batchLen, l.RxFrames)),
		frames:    newFrames(p, l),
		ends:      make([]End, 0, n),
		doorbells: newDoorbells(n),
		stopped:   make(chan struct{}),
		halted:    make(chan struct{}, 1),
	}
	e.line.frames = &e.frames
	return e, nil
}

// Queue returns the port's queue that this engine serves.
func (e *Engine) Queue() uint16 { return e.queue }

// Lane returns the number of this engine in its adapter.
func (e *Engine) Lane() port.Lane { return e.lane }

// Step moves every octet that can move at time now. Step returns when it must run next,
// or clock.Never if only an event requires it. Step never blocks, allocates or locks.
// The caller must hold the token.
func (e *Engine) Step(now clock.Instant) (next clock.Instant) {
	e.now, e.worked = now, false
	e.tx.room = 0 // tx.room is read when it is first needed
	e.tapped = e.taps.Rings()
	e.more = false
	if len(e.lanes.engines) != 0 {
		e.frames.compare()
	}

	e.receive()
	e.drainBeforeTimers(now)
	if len(e.lanes.engines) != 0 {
		e.takeMail()
	}
	e.doorbells.empty(e)
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
	if len(e.lanes.engines) != 0 {
		e.frames.publish()
		e.wakePeers()
	}
	if e.worked {
		e.count.Steps++
		e.rest.vain = 0
	} else if e.rest.vain < vainMost {
		e.rest.vain++
	}
	return e.deadline()
}

// drainBeforeTimers reads the receive ring before a due timer may fire, because the
// frame that the timer waits for may already be there. drainBeforeTimers reads no more
// frames than the pool has, because a step fills no frame twice. A flood therefore
// delays timers by at most one ring.
func (e *Engine) drainBeforeTimers(now clock.Instant) {
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

// rung handles the doorbell of the flow with this index, after the doorbell's bit was
// cleared.
func (e *Engine) rung(index int) {
	f := e.flows[index]
	if f == nil || f.conn == nil && !f.lingers {
		e.passDoorbell(index)
		return
	}
	e.worked = true
	e.mark(f)
}

// serve lets f's upper layer and its connection do their work, in the order of the
// data: received octets up, new octets down, segments out. New octets may fill up to
// the given number of frames.
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
	if guests := f.guests; guests != 0 {
		f.conn.MoveOut(f)
		e.count.ForeignCopied += uint64(guests - f.guests)
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

// flush makes the kernel send this step's packets. While the link is down the packets
// are lost, as on any link, and TCP retransmits them.
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
