package rdmap

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Config is the configuration of a QP. Every field but MaxInline, SendRing and RecvRing
// must be set.
type Config struct {
	Number uint32 // of the QP, for completions and for bound windows
	PD     tpt.PD
	Table  *tpt.Table
	Board  *signal.Board

	SendCQ, RecvCQ       *work.CQ // may be the same
	SendDepth, RecvDepth int      // work requests at a time, at least 1
	MaxSGE               int      // elements of a work request, 1 to 255
	MaxInline            int      // octets

	// SendRing and RecvRing are memory that the queues lie in, laid out for the
	// depths and limits above. nil: memory of their own.
	SendRing, RecvRing *work.Ring
}

// QP is one end of a reliable connection: the machine between work queues and a stream.
// It implements stream.ULP.
type QP struct {
	cfg   Config // fixed after New
	agree mpa.Agreed

	// News is raised whenever the state changes, and when the QP is dead. The owner
	// sets its Fire before Start.
	News signal.Signal

	// Any goroutine fills the queues, one at a time for each queue. Step empties them.
	sq        work.SendQueue
	rq        work.RecvQueue
	wantClose atomic.Bool
	wantAbort atomic.Pointer[error] // the cause, if set
	spilt     atomic.Bool           // a CQ of the QP is known to be overrun

	// Written by Step, read by any goroutine.
	state    atomic.Uint32
	dead     atomic.Bool // no step will look at this QP again
	flushing atomic.Bool // held by the goroutine that flushes a dead QP
	cause    Cause       // fixed when state becomes Terminate or Errored

	// Step owns the fields that follow.
	rx       *mpa.Deframer
	tx       *mpa.Framer
	seg      ddp.Segment // the segment under inspection
	own      tpt.Memo    // the last region that a list of ours named
	peers    tpt.Memo    // the last region that the peer named
	out      outgoing
	in       incoming
	term     ending
	orq      fifo[outRead] // our Reads that wait for their Response
	irq      fifo[inRead]  // the peer's Reads that wait for their Response
	sends    ddp.Queue     // arriving messages, by queue number
	requests ddp.Queue
	arriving arrival        // the Send that is arriving
	held     delivery       // a completion that waits for an invalidation
	msn      [queues]uint32 // of the next message that leaves, by queue
	writing  bool           // a Write of the peer is arriving
	opening  opening
	overrun  bool // a completion has been lost
	gone     bool // registered memory has faulted, which ends the connection
	peerShut bool // the peer has closed its direction
	weShut   bool // our direction is closed
	turn     bool // a Response left last: a work request is next
	nudge    nudge
	now      clock.Instant
	countIn  tally // see stats.go
	countOut tally
}

// opening says how far the two ends have come with their first FPDUs.
type opening struct {
	open   bool // our first FPDU may leave
	begun  bool // the peer's first FPDU has come
	rtrDue bool // our first FPDU must be the ready-to-receive message
	rtrIn  bool // the peer's first FPDU must be the ready-to-receive message
}

const (
	// lingerTime is how long the peer may take to close the connection after it has
	// acknowledged a Terminate. Then the connection is reset.
	lingerTime = 5 * time.Second

	// lingerMost is how long the peer may take in all. On a bad path the Terminate may
	// need several retransmission timeouts to arrive. An earlier reset would overtake
	// it, and the peer would never learn the cause. If the reset is lost too, the peer
	// would not even learn that the connection has ended.
	lingerMost = 20 * time.Second
)

// New makes a QP that is not connected. Receives can be posted before Start.
func New(c Config) *QP {
	q := &QP{
		cfg:      c,
		sends:    ddp.NewQueue(),
		requests: ddp.NewQueue(),
		msn:      [queues]uint32{1, 1, 1},
	}
	q.sq.Init(c.SendRing, c.SendDepth, c.MaxSGE, c.MaxInline)
	q.rq.Init(c.RecvRing, c.RecvDepth, c.MaxSGE)
	return q
}

// Start gives an unconnected QP what its two ends have agreed on. From then on the QP
// can be given a stream, and sends can be posted.
func (q *QP) Start(a mpa.Agreed) {
	q.agree = a
	q.rx = mpa.NewDeframer(a.CRC, a.ReceiveMarkers)
	q.tx = mpa.NewFramer(a.CRC, a.SendMarkers)
	q.orq = newFIFO[outRead](max(1, int(a.ORD)))
	q.irq = newFIFO[inRead](max(1, int(a.IRD)))
	q.opening.open = a.Initiator || a.Eager && a.RTR == mpa.NoRTR
	q.opening.rtrDue = a.Initiator && a.RTR != mpa.NoRTR
	q.opening.rtrIn = !a.Initiator && a.RTR != mpa.NoRTR
	if a.Initiator {
		q.nudge = nudge{left: nudges, wait: nudgeAfter}
	}
	q.move(evConnected)
}

// Number returns the QP's number.
func (q *QP) Number() uint32 { return q.cfg.Number }

// State returns the QP's state now.
func (q *QP) State() State { return State(q.state.Load()) }

// Cause returns the reason why the QP's connection ended in error. It is zero if it did
// not.
func (q *QP) Cause() Cause {
	if s := q.State(); s == Terminate || s == Errored {
		return q.cause
	}
	return Cause{}
}

// Dead reports whether the QP is done with its stream for good. FlushDead must flush
// work requests that are posted from now on.
func (q *QP) Dead() bool { return q.dead.Load() }

// move applies ev to the state, and reports whether ev could happen in it.
func (q *QP) move(ev event) bool {
	next, ok := q.State().next(ev)
	if ok {
		q.state.Store(uint32(next))
		q.cfg.Board.Raise(&q.News)
	}
	return ok
}

// Depths returns how many Reads of ours and of the peer can be outstanding. It is valid
// after Start.
func (q *QP) Depths() (ord, ird int) { return int(q.agree.ORD), int(q.agree.IRD) }

// PostSend copies work requests into the send queue, as many as there is room
// for, and reports how many. Step sees them all at once. The caller has checked
// them, holds the queue's post lock, and rings the stream's doorbell afterwards.
func (q *QP) PostSend(wrs ...work.SendWR) int { return q.sq.Post(wrs) }

// CheckSend returns what is wrong with a work request by itself. Whether the QP may use
// its memory is found when the request starts.
func (q *QP) CheckSend(wr *work.SendWR) error { return q.cfg.checkSend(wr) }

// PostRecv copies work requests into the receive queue, as many as there is room
// for, and reports how many. The caller has checked them and holds the queue's post
// lock.
func (q *QP) PostRecv(wrs ...work.RecvWR) int { return q.rq.Post(wrs) }

// Drained reports whether every send that was posted has completed.
func (q *QP) Drained() bool { return q.sq.Empty() }

// Disconnect asks for a close in good order: a FIN follows when all posted sends have
// completed. Ring the doorbell afterwards.
func (q *QP) Disconnect() { q.wantClose.Store(true) }

// Abort asks for a reset. Ring the doorbell afterwards.
func (q *QP) Abort() { q.AbortFor(stream.ErrAborted) }

// Overrun notes that a CQ of the QP has lost a completion, of this QP or of another.
// The peer gets a Terminate, as when the QP itself finds the overrun. Ring the doorbell
// afterwards.
func (q *QP) Overrun() { q.spilt.Store(true) }

// AbortFor asks for a reset because of err, which becomes the cause. The first
// call decides. Ring the doorbell afterwards.
func (q *QP) AbortFor(err error) { q.wantAbort.CompareAndSwap(nil, &err) }

// Kill ends a QP that has no stream: it was never connected, or connecting it failed.
// Kill flushes everything that is posted.
func (q *QP) Kill(err error) {
	if q.State() != Errored {
		q.cause = Cause{Err: err}
	}
	q.move(evLost)
	q.die()
}

// Deadline implements stream.ULP.
func (q *QP) Deadline() clock.Instant {
	switch {
	case q.held.active:
		return q.now.Add(settleAgain)
	case q.alive() && !q.weShut:
		return q.nudge.at
	}
	return q.term.deadline
}

// Fault implements stream.ULP.
func (q *QP) Fault(now clock.Instant, err error) {
	q.now = now
	switch {
	case err == nil:
		if q.State() == RTS { // cannot be: nothing else closes our stream
			q.cause = Cause{Err: ErrPeerClosed}
		}
		q.move(evEnded)
	default:
		if s := q.State(); s != Terminate && s != Errored {
			q.cause = Cause{Err: err}
		}
		q.move(evLost)
	}
	q.die()
}

// die flushes the QP and marks it dead. It raises News even if the state has not
// changed: death is news by itself.
func (q *QP) die() {
	q.flush()
	q.sq.Close()
	q.rq.Close()
	q.dead.Store(true)
	q.FlushDead()
	q.cfg.Board.Raise(&q.News)
}

// FlushDead completes what was posted to a dead QP. A poster that has found the QP dead
// calls it, and the QP's last step does. It may raise signals.
func (q *QP) FlushDead() {
	for q.dead.Load() && !(q.sq.Empty() && q.rq.Empty()) {
		if !q.flushing.CompareAndSwap(false, true) {
			return // the goroutine that holds it looks once more
		}
		q.flush()
		q.flushing.Store(false)
	}
}
