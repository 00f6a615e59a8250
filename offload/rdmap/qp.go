package rdmap

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Config is the configuration of a QP. Only MaxInline, SignalAll, Reactive, Registers, Hold,
// KeepReceives, Client, the rings and the places may be zero.
type Config struct {
	Number uint32 // number of the QP, for completions and for bound windows
	Client uint32 // client of the process that the QP works for; 0: the process itself
	PD     tpt.PD
	Table  *tpt.Table

	ClientFrames int // transmit frames of a queue that all QPs of Client may hold; 0: no limit
	Board        *signal.Board

	SendCQ, RecvCQ       *work.CQ // CQs of the two queues; they may be the same CQ
	SendDepth, RecvDepth int      // work requests that a queue holds, at least 1
	MaxSGE               int      // elements of a work request's list, 1 to 255
	MaxInline            int      // largest length of inline data in octets

	// Shared is the queue from which the QP takes its receives. If Shared is nil, the QP
	// has a receive queue of its own. RecvPD is the protection domain of the memory of
	// Shared's receives. RecvDepth and RecvRing are not used with Shared, and RecvPD is
	// not used without it.
	Shared *work.SharedQueue
	RecvPD tpt.PD

	SignalAll bool // every send has the flag Signaled

	// Reactive says what happens when the table refuses a request for a region or window:
	// the send queue is drained until Resume. If Reactive is false, the connection ends.
	Reactive bool

	// Registers says that the send queue takes registrations (work.WRRegMR).
	Registers bool

	// Hold is how long a message of the peer may wait for a receive. 0: a message that finds
	// no receive ends the connection. HoldForever: there is no limit.
	Hold time.Duration

	// KeepReceives leaves receives posted when the connection ends in good order. They are
	// flushed when the owner asks for a reset (AbortFor) and calls FlushDead.
	KeepReceives bool

	// Rate is how many octets of payload leave in a second, at most MaxRate, until SetRate.
	// 0 means no limit. The payload of Sends, Writes and Read Responses counts. Retransmissions,
	// headers, Read Requests, atomic operations and Immediate Data do not count.
	Rate uint64

	// Denied are rights that the peer does not have through this QP, until Deny: RemoteWrite,
	// RemoteRead and RemoteAtomic.
	Denied tpt.Rights

	// SendRing and RecvRing are memory for the queues, laid out for the depths and
	// limits above. A queue without a ring allocates its own memory.
	SendRing, RecvRing *work.Ring

	// SendPlaces and RecvPlaces count the places of the queues, for an imported QP whose
	// completions already wait in a CQ. nil: the queues have places of their own. RecvPlaces
	// is not used with Shared.
	SendPlaces, RecvPlaces *work.Places
}

// QP is one end of a reliable connection. A QP is the state machine between work queues
// and a stream. A QP implements stream.ULP.
type QP struct {
	cfg   Config // configuration; it does not change after New
	agree mpa.Agreed

	// News is raised when the state changes, and when the QP is dead. The owner must
	// set Fire of News before Start.
	News signal.Signal

	// Wants is raised when a request of the peer needs memory of another process: see
	// Wanted. Fire is nil if there is none.
	Wants  signal.Signal
	wanted question

	// Any goroutine may fill the queues, one at a time for each queue. Step empties
	// them.
	sq        work.SendQueue
	rq        work.RecvQueue
	halt      halt
	wantAbort atomic.Pointer[error] // the cause of an abort; nil: none is wanted
	wantClose atomic.Bool
	spilt     atomic.Bool // a CQ of the QP is known to be overrun

	// Step writes these fields, and any goroutine may read them.
	state    atomic.Uint32
	dead     atomic.Bool // no step will use this QP any more
	reached  reached
	flushing atomic.Bool // a goroutine flushes the dead QP
	cause    Cause       // reason for the end of the connection; it does not change after state becomes Terminate or Errored

	denied atomic.Uint32 // see Deny

	// Step owns these fields.
	rx       *mpa.Deframer
	tx       *mpa.Framer
	seg      ddp.Segment // the segment that is being processed
	regions  *regions    // see known
	out      outgoing
	in       incoming
	term     *ending       // see ending
	orq      fifo[outRead] // Reads and atomic operations of this end that wait for their Response
	irq      fifo[inRead]  // the peer's Reads and atomic operations that wait for their Response
	atomics  *atomics      // nil unless both ends speak RFC 7306
	sends    ddp.Queue     // order of arriving messages, by queue number
	requests ddp.Queue
	arriving arrival        // the Send that is arriving
	settling settling       // requests on the table that wait for an invalidation
	msn      [queues]uint32 // numbers of the next messages to send, by queue
	opening  opening
	losses   losses
	peerShut bool // the peer has closed its direction
	weShut   bool // the direction of this end is closed
	nudge    nudge
	now      clock.Instant
	counts   counts
	exported bool // see Exported
}

// regions remembers the last checks of regions.
type regions struct {
	own   tpt.Memo // the last region that a list of this end named
	peers tpt.Memo // the last region that the peer named
}

// known returns q.regions. known makes it when it is first used, so that an idle QP
// needs less memory.
func (q *QP) known() *regions {
	if q.regions == nil {
		q.regions = new(regions)
	}
	return q.regions
}

// reached says which stages of a connection the QP has reached. Each becomes true once.
type reached struct {
	established atomic.Bool // the first message of the initiator has come to this responder
	drained     atomic.Bool // in a close in good order, every send has completed and a FIN follows
	sated       atomic.Bool // the QP has completed its last receive of cfg.Shared
}

// opening says which of the first FPDUs of the two ends have been sent and received.
type opening struct {
	open   bool // the first FPDU of this end may be sent
	begun  bool // the peer's first FPDU has come
	rtrDue bool // the first FPDU of this end must be the ready-to-receive message
	rtrIn  bool // the peer's first FPDU must be the ready-to-receive message

	// patience is how long this end waits for the peer's first FPDU from its first step on. 0:
	// for ever, or nudge.at has the end of the wait.
	patience time.Duration
}

// losses are reasons to end the connection that a later part of the step deals with.
type losses struct {
	overrun bool // a completion has been lost
	gone    bool // registered memory has faulted
}

const (
	// lingerTime is how long the peer may take to close the connection after it has
	// acknowledged a Terminate. After that, the QP resets the connection.
	lingerTime = 5 * time.Second

	// lingerMost is how long the peer may take in all. On a bad path the Terminate may
	// need several retransmission timeouts to arrive. An earlier reset would overtake
	// the Terminate, and the peer would never learn the cause. If the reset is lost
	// too, the peer does not even learn that the connection has ended.
	lingerMost = 20 * time.Second
)

// New makes a QP that is not connected. Posters may call PostRecv before Start.
func New(c Config) *QP {
	q := &QP{
		cfg:      c,
		sends:    ddp.NewQueue(),
		requests: ddp.NewQueue(),
		msn:      [queues]uint32{1, 1, 1, 1},
	}
	q.Deny(c.Denied)
	q.SetRate(c.Rate)
	q.sq.Init(c.SendRing, c.SendDepth, c.MaxSGE, c.MaxInline)
	if c.SignalAll {
		q.sq.Always = work.Signaled
	}
	if c.Shared != nil {
		q.rq.Share(c.Shared)
	} else {
		q.cfg.RecvPD = c.PD
		q.rq.Init(c.RecvRing, c.RecvDepth, c.MaxSGE)
	}
	if c.SendPlaces != nil {
		q.sq.Places = c.SendPlaces
	}
	if c.RecvPlaces != nil && c.Shared == nil {
		q.rq.Places = c.RecvPlaces
	}
	return q
}

// Start gives an unconnected QP the result of the negotiation. After Start the QP can
// get a stream, and posters may call PostSend.
func (q *QP) Start(a mpa.Agreed) {
	q.agree = a
	q.rx = mpa.NewDeframer(a.CRC, a.ReceiveMarkers)
	q.tx = mpa.NewFramer(a.CRC, a.SendMarkers)
	q.in.ahead, q.in.promised = newAhead(&a), a.Extensions.Has(wire.ExtAlignedFPDUs)
	q.orq = newFIFO[outRead](max(1, int(a.ORD)))
	q.irq = newFIFO[inRead](max(1, int(a.IRD)))
	if a.RFC7306 {
		q.atomics = newAtomics(a)
	}
	q.opening.open = a.Initiator || a.Eager && a.RTR == mpa.NoRTR
	q.opening.rtrDue = a.Initiator && a.RTR != mpa.NoRTR
	q.opening.rtrIn = !a.Initiator && a.RTR != mpa.NoRTR
	if !a.Initiator && a.RTR == mpa.NoRTR {
		q.opening.patience = a.EagerAfter
	}
	if a.Initiator || q.opening.patience != 0 {
		q.nudge = nudge{left: nudges, wait: nudgeAfter}
	}
	q.move(evConnected)
}

// Number returns the QP's number.
func (q *QP) Number() uint32 { return q.cfg.Number }

// Client implements stream.Client.
func (q *QP) Client() uint32 { return q.cfg.Client }

// Frames implements stream.Client.
func (q *QP) Frames() int { return q.cfg.ClientFrames }

// State returns the QP's state now. Drained is RTS with a send queue that waits for
// Resume.
func (q *QP) State() State {
	s := q.phase()
	if s == RTS && q.halt.fault() != tpt.OK {
		return Drained
	}
	return s
}

// phase returns the state of the connection, which is never Drained.
func (q *QP) phase() State { return State(q.state.Load()) }

// Cause returns the reason why the QP's connection ended in error. Cause returns the
// zero Cause if there was no error.
func (q *QP) Cause() Cause {
	if s := q.phase(); s == Terminate || s == Errored {
		return q.cause
	}
	return Cause{}
}

// Dead reports whether no step will use the QP any more. A poster of a dead QP must
// call FlushDead.
func (q *QP) Dead() bool { return q.dead.Load() }

// move applies ev to the state. move returns false if ev cannot happen in that state.
func (q *QP) move(ev event) bool {
	next, ok := q.phase().next(ev)
	if ok {
		q.state.Store(uint32(next))
		if next != RTS {
			q.rq.End()
		}
		q.cfg.Board.Raise(&q.News)
	}
	return ok
}

// Established reports whether this end has accepted the connection and the initiator's
// first message has come. From then on this end may send (RFC 5044 §7.1.2). News is raised
// when Established becomes true.
func (q *QP) Established() bool { return q.reached.established.Load() }

// SendsDrained reports whether the connection is closing in good order, every posted send
// has completed, and no more octets will leave. News is raised when SendsDrained becomes
// true.
func (q *QP) SendsDrained() bool { return q.reached.drained.Load() }

// Depths returns how many Reads and atomic operations of this end and of the peer can be
// outstanding. Depths is valid after Start.
func (q *QP) Depths() (ord, ird int) { return int(q.agree.ORD), int(q.agree.IRD) }

// PostSend copies as many work requests as there is room for into the send queue, and
// returns their number. Step sees all of them at once. The caller must have checked the
// requests and hold the queue's post lock. The caller must ring the stream's doorbell
// afterwards.
func (q *QP) PostSend(wrs ...work.SendWR) int { return q.sq.Post(wrs) }

// SendRoom returns for how many work requests the send queue has room. The caller must
// hold the queue's post lock.
func (q *QP) SendRoom() int { return q.sq.Room() }

// CheckSend returns an error if a work request is malformed. The request's access to
// its memory is checked later, when the request starts.
func (q *QP) CheckSend(wr *work.SendWR) error { return q.cfg.checkSend(wr) }

// PostRecv copies as many work requests as there is room for into the receive queue,
// and returns their number. The caller must have checked the requests and hold the
// queue's post lock.
func (q *QP) PostRecv(wrs ...work.RecvWR) int { return q.rq.Post(wrs) }

// Sated reports whether the QP takes receives from Config.Shared and has completed the
// last one. The QP has then raised News.
func (q *QP) Sated() bool { return q.reached.sated.Load() }

// Drained reports whether every posted send has completed.
func (q *QP) Drained() bool { return q.sq.Empty() }

// Disconnect asks for a close in good order: a FIN follows when all posted sends have
// completed. The caller must ring the doorbell afterwards.
func (q *QP) Disconnect() { q.wantClose.Store(true) }

// Abort asks for a reset. The caller must ring the doorbell afterwards.
func (q *QP) Abort() { q.AbortFor(stream.ErrAborted) }

// Overrun tells the QP that one of its CQs has lost a completion, of this QP or of
// another. The QP sends a Terminate, as when it detects the overrun itself. The caller
// must ring the doorbell afterwards.
func (q *QP) Overrun() { q.spilt.Store(true) }

// AbortFor asks for a reset because of err, which becomes the cause. Only the first
// call counts. The caller must ring the doorbell afterwards.
func (q *QP) AbortFor(err error) { q.wantAbort.CompareAndSwap(nil, &err) }

// Kill ends a QP that has no stream. Such a QP was never connected, or the attempt to
// connect it failed. Kill flushes all posted requests.
func (q *QP) Kill(err error) {
	if q.phase() != Errored {
		q.cause = Cause{Err: err}
	}
	q.move(evLost)
	q.die()
}

// Ended ends a QP that has no stream because its connection is in another process, and that
// has been started. err is the reason, or nil if the connection was closed in good order.
func (q *QP) Ended(err error) {
	if err != nil {
		q.Kill(err)
		return
	}
	q.move(evClosing)
	q.move(evEnded)
	q.die()
}

// Deadline implements stream.ULP.
func (q *QP) Deadline() clock.Instant {
	switch {
	case q.out.busy:
		return q.now
	case q.in.held.active && !q.in.held.repeats() || q.settling.active && q.alive():
		return q.now.Add(settleAgain)
	case q.alive() && !q.weShut:
		sends := clock.Sooner(clock.Sooner(q.nudge.at, q.out.delay), q.out.pace.Load().deadline())
		return clock.Sooner(sends, q.holdDeadline())
	}
	if q.term == nil {
		return q.holdDeadline()
	}
	return q.term.deadline
}

// Fault implements stream.ULP.
func (q *QP) Fault(now clock.Instant, err error) {
	q.now = now
	switch {
	case err == nil:
		if q.phase() == RTS { // unreachable: only this machine closes the stream
			q.cause = Cause{Err: ErrPeerClosed}
		}
		q.move(evEnded)
	default:
		if s := q.phase(); s != Terminate && s != Errored {
			q.cause = Cause{Err: err}
		}
		q.move(evLost)
	}
	q.die()
}

// die flushes the QP and marks it dead. die raises News even if the state has not
// changed, because the owner also waits until the QP is dead.
func (q *QP) die() {
	q.drop()
	q.flush()
	q.dead.Store(true)
	if !q.mapped() {
		q.FlushDead()
	}
	q.cfg.Board.Raise(&q.News)
}

// mapped reports whether the queues lie in memory that the caller has passed.
func (q *QP) mapped() bool { return q.cfg.SendRing != nil || q.cfg.RecvRing != nil }

// CloseRings ends the queues of a dead QP whose memory the caller has passed. The memory is
// not accessed any more, unless FlushDead runs now.
func (q *QP) CloseRings() {
	q.sq.Close()
	q.rq.Close()
}

// late reports whether requests of the dead QP must be flushed.
func (q *QP) late() bool {
	return q.dead.Load() && !(q.sq.Empty() && (q.rq.Empty() || q.keeps()))
}

// keeps reports whether receives stay posted, because the connection ends or has ended in good
// order (Config.KeepReceives).
func (q *QP) keeps() bool {
	s := q.phase()
	return q.cfg.KeepReceives && (s == Closing || s == Idle) && q.wantAbort.Load() == nil
}

// FlushDead completes requests that were posted to a dead QP. A poster that has found
// the QP dead must call it. The last step of the QP also calls it. FlushDead may raise
// signals.
//
// If the queues lie in memory that the caller has passed, the caller must call FlushDead when
// News says that the QP is dead, and after each later post. Only one goroutine at a time may
// call it then. It looks at the queues once, because a poster that never stops would keep it
// for ever.
func (q *QP) FlushDead() {
	if q.mapped() {
		if q.late() {
			q.flush()
		}
		return
	}
	for q.late() {
		if !q.flushing.CompareAndSwap(false, true) {
			return // the goroutine that holds flushing looks at the queues once more
		}
		q.flush()
		q.flushing.Store(false)
	}
}
