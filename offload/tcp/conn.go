package tcp

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// Conn is one established connection. Conn implements stream.Stream. Only the goroutine that runs the connection may
// call the methods. After New only Rings allocates. Fields of one octet are grouped to save memory, because there
// are many idle connections (TestConnIsSmall).
type Conn struct {
	mem   Memory
	cfg   Config // configuration with the defaults filled in
	stats Stats
	hdr   wire.TCPFields // the header that Output.Send gets

	err error // reason for the end of the connection; nil after a normal close

	flags

	// Sending. The octets from sndUna to dataEnd are in q. A FIN may follow them.
	sndUna, sndNxt seq.Num // sndNxt includes the FIN of this end once it has been sent
	dataEnd        seq.Num // the octet after the last one that was emitted
	q              queue
	backlog        []byte  // octets of State.Queue that have no frame yet
	backlogSeq     seq.Num // sequence number of the first octet in backlog

	// The peer's window.
	sndWnd, maxWnd uint32
	wl1, wl2       seq.Num
	path           path

	// Segments in flight, and the path.
	board      scoreboard
	loss       loss
	congestion congestion
	slabs      slabs
	trip       time.Duration // round trip of the segment that was acknowledged last; 0: not known
	rtt        estimator

	// Receiving.
	rcvNxt seq.Num
	in     inbox
	rcvAdv seq.Num // right edge of the window that was advertised; it only moves forward
	rcvMSS uint32  // length of the largest recent segment
	tune   tuner
	finAt  seq.Num // sequence number of the peer's FIN, valid if finKnown

	// Acknowledging.
	dupOwed uint32 // duplicate ACKs that a peer without SACK must still get
	lastAck seq.Num
	edge    seq.Num       // right edge that hdr advertises
	edgeAt  clock.Instant // time when edge was computed
	ecn     ecn
	stamp   stamps
	limit   limiter

	timers   timers
	patience patience
	rstSeq   seq.Num // sequence number of the RST to send, valid if rst
}

// loss is the state for finding and repairing lost segments (recovery.go, rack.go, tlp.go, prr.go, spurious.go,
// sack.go).
type loss struct {
	recoverAt seq.Num // recovery ends when this number has been acknowledged
	dupAcks   uint32
	renoOut   uint32        // octets that have left the network according to duplicate ACKs (without SACK)
	lostFrom  seq.Num       // where the search for the first entry to retransmit begins
	cutAt     clock.Instant // time when cwnd was reduced, or time of the last timeout
	rack      rack
	tail      tail
	slack     slack // slack of the probe timer
	prr       prr
	undo      undo
	dsack     wire.SACKBlock // D-SACK of the ACK that is being processed, valid if hasDSACK
}

// congestion is the congestion control and the input for it (congestion.go, rto.go).
type congestion struct {
	cc       Congestion
	ccWas    string        // the kernel's name of the congestion control before cc
	lastData clock.Instant // time when data was last sent
	idled    int           // number of RTOs since lastData that cc has been told of
	flown    uint32        // outstanding octets of data after the last Transmit
}

// slabs says which sent octets are in slabs instead of frames (unload.go).
type slabs struct {
	unloaded  seq.Num // sent octets before this number are in slabs
	slabsSent int     // number of slabs with sent octets
}

// timers are the times at which a connection's timers expire. A timer that does not run is clock.Never (timers.go).
type timers struct {
	ackAt     clock.Instant
	rtoAt     clock.Instant
	persistAt clock.Instant
	keepAt    clock.Instant
	lossAt    clock.Instant // time when a segment counts as lost (rack.go); if probing is set, time when a probe is due (tlp.go)
	renegeAt  clock.Instant // time when SACKed octets that the peer still requests count as discarded (sack.go)
	waitUntil clock.Instant // end of TIME-WAIT, valid in InTimeWait
}

// patience says how long the peer has not answered, and how long it may be silent (timers.go, persist.go,
// keepalive.go).
type patience struct {
	retries    uint32        // consecutive retransmission timeouts without progress
	probes     uint32        // consecutive probes of either kind without an answer
	progressAt clock.Instant // time when the oldest outstanding octet was sent, or when the last progress was made
	lastHeard  clock.Instant
	stalledAt  clock.Instant // time when the peer closed its window
	keep       keepalive
	userLimit  time.Duration
}

// flags are the fields of a connection that take one octet each.
type flags struct {
	phase    Phase
	sndScale uint8
	rcvScale uint8
	backoff  uint8 // backoff of the persist timer
	mode     mode
	frto     frto

	// Sending.
	finQueued   bool
	finSent     bool
	finLost     bool
	sackOK      bool
	bounds      bool // no segment may arrive out of order that begins in the middle of an Emit (KeepBoundaries)
	noDelay     bool
	forced      bool // the next retransmission ignores cwnd
	cut         bool // this fast recovery has reduced cwnd
	lostTwice   bool // a retransmission that was sent after cutAt is lost
	hasDSACK    bool // the ACK that is being processed reports a duplicate
	armTail     bool // the probe timer must be restarted
	probing     bool // lossAt is the time of a probe
	blocked     bool // the last Transmit found no room or memory
	paused      bool // Emit refused octets, because enough octets wait to be sent
	cwndLimited bool
	answer      bool // this end has reset the connection; later segments get an answer
	probe       bool // a probe must be sent
	pushSome    bool // sender SWS avoidance is off for one segment
	rst         bool // an RST must be sent

	// Receiving.
	finKnown bool // this end has seen the peer's FIN
	peerFin  bool // the peer's FIN and all octets before it have arrived
	arrived  bool // Arrived has not yet reported octets or the FIN
	ackNow   bool
	consumed bool // Consume was called since the last update of the window
}

var _ stream.Stream = (*Conn)(nil)

// maxQueue limits State.Queue and State.Unread in octets. Sequence arithmetic needs the rest of the sequence space.
// No kernel queue is larger.
const maxQueue = 1 << 28

// New makes a connection from st at time now. New checks all fields of st and returns one error with every mistake.
// New copies st.Queue and st.Unread.
func New(now clock.Instant, st State, cfg Config, mem Memory) (*Conn, error) {
	cfg, bad := cfg.fill()
	if err := errors.Join(bad, st.Check()); err != nil {
		return nil, fmt.Errorf("new connection: %w", err)
	}
	c := &Conn{mem: mem, cfg: cfg}
	c.path = newPath(&st)
	if f, ok := mem.Take(); ok { // one frame, to learn its room for payload
		c.path.room = f.Len
		mem.Free(f)
	}
	if st.Fresh {
		st.forgetPath(c.path.emss())
	}
	c.initSender(now, &st)
	c.initReceiver(now, &st)
	c.patience.keep = newKeepalive(&st)
	c.patience.userLimit = st.UserTimeout
	if c.patience.userLimit == 0 {
		c.patience.userLimit = cfg.UserTimeout
	}
	c.noDelay = st.NoDelay
	c.patience.lastHeard = now
	c.timers.keepAt = c.patience.keep.first(now)
	c.resumePhase(now, &st)
	c.resume(now, &st)
	if c.phase != InTimeWait {
		c.armTimers(now)
	}
	return c, nil
}

func (c *Conn) initSender(now clock.Instant, st *State) {
	c.sndUna, c.sndNxt = st.SndUna, st.SndNxt
	c.dataEnd = st.SndUna.Add(seq.Len(len(st.Queue)))
	c.sndWnd, c.maxWnd = st.SndWnd, max(st.MaxWnd, st.SndWnd)
	c.wl1, c.wl2 = st.SndWL1, st.SndUna
	c.sndScale = st.SndScale
	c.sackOK = st.SACK
	c.loss.recoverAt = st.SndUna.Back(1)
	c.slabs.unloaded = st.SndUna
	c.board.forget(st.SndUna)
	c.rtt = newEstimator(st, &c.cfg)
	c.rtt.next = st.SndUna
	c.loss.rack = newRack(now, st)
	c.loss.slack = slack{d: firstSlack, since: now}
	c.congestion.lastData, c.patience.progressAt = now, now

	c.congestion.cc, c.congestion.ccWas = c.newCongestion(now, st), st.Congestion
	c.loadQueue(st, c.path.emss())
	c.congestion.flown = c.q.flight
}

// loadQueue makes entries for the octets that the application had written. There is a boundary where the sent octets
// end, and otherwise after every mss octets. The octets stay on the heap until this Conn sends them, because most of
// the sent octets are acknowledged before that.
func (c *Conn) loadQueue(st *State, mss uint32) {
	want := max(c.cfg.SndSegs, uint32(len(st.Queue))/mss+2)
	c.q = newQueue(1<<bits.Len32(2*want-1), &c.cfg.Rings.entries)
	c.backlog = append([]byte(nil), st.Queue...)
	c.backlogSeq = st.SndUna
	dataSent := st.dataSent()
	for s := st.SndUna; s != c.dataEnd; {
		end := c.dataEnd
		sent := s.Before(dataSent)
		if sent {
			end = dataSent
		}
		n := min(uint32(s.Until(end)), mss)
		c.q.push(entry{seq: s, n: n, how: inner})
		if sent {
			// The time and the number of transmissions are not known, so that the entry gives no sample (Karn).
			e := c.q.last()
			e.tx, e.sentAt = 2, st.At
			c.q.sentFirst()
		}
		s = s.Add(seq.Len(n))
	}
}

func (c *Conn) initReceiver(now clock.Instant, st *State) {
	c.in = newInbox(c.mem, c.cfg.RcvSegs, &c.cfg.Rings.runs)
	c.rcvNxt = st.RcvNxt
	c.rcvAdv = seq.Later(st.RcvWup.Add(seq.Len(st.RcvWnd)), st.RcvNxt)
	c.rcvScale = st.RcvScale
	c.rcvMSS = min(536, c.path.peer)
	c.tune = c.newTuner(now)
	c.ecn.on = st.ECN
	c.stamp = newStamps(st)
	c.limit = newLimiter(now, c.cfg.Seed)
	// RCV.WUP is RCV.NXT at the time of the last ACK. Octets that arrived later have not been acknowledged yet. A
	// sending peer has waited for that ACK during the take-over.
	c.lastAck = st.RcvWup
	c.ackNow = c.lastAck != c.rcvNxt
	if len(st.Unread) > 0 {
		end := st.RcvNxt
		if st.Phase.peerFIN() {
			end = end.Back(1)
		}
		c.in.push(held{
			seq:  end.Back(seq.Len(len(st.Unread))),
			data: append([]byte(nil), st.Unread...),
			heap: true,
		})
		c.arrived = true
	}
}

// dataNxt returns the sequence number after the last octet that was sent. The FIN of this end does not count.
func (c *Conn) dataNxt() seq.Num {
	if c.finSent {
		return c.dataEnd
	}
	return c.sndNxt
}

// outstanding reports whether octets or a FIN are sent and not acknowledged.
func (c *Conn) outstanding() bool { return c.sndNxt != c.sndUna }

// unsent reports whether octets or a FIN wait for their first transmission.
func (c *Conn) unsent() bool { return c.q.sent < c.q.count || (c.finQueued && !c.finSent) }

// enter changes the phase of the connection for ev. If ev has no meaning in the present phase, enter changes
// nothing.
func (c *Conn) enter(now clock.Instant, ev event) {
	next, ok := c.phase.next(ev)
	if !ok {
		return
	}
	c.phase = next
	switch next {
	case InTimeWait:
		c.startTimeWait(now)
	case Closed:
		c.stopTimers()
	}
}

// fail ends the connection with err. fail releases all memory of the connection.
func (c *Conn) fail(err error) {
	if c.phase == Closed {
		return
	}
	c.phase, _ = c.phase.next(evReset)
	c.err = err
	c.stopTimers()
	c.releaseAll()
}

// reset fails the connection. reset sends an RST to the peer (RFC 9293 §3.10.5).
func (c *Conn) reset(err error) {
	if c.phase != Closed && c.phase != InTimeWait {
		c.rst, c.answer, c.rstSeq = true, true, c.sndNxt
	}
	c.fail(err)
}

func (c *Conn) releaseAll() {
	for i := range c.q.count {
		c.free(c.q.at(i))
	}
	c.q.head, c.q.count, c.q.sent = 0, 0, 0
	c.q.vacant()
	c.q.flight, c.q.sacked, c.q.missing, c.q.again, c.q.pending, c.q.marks = 0, 0, 0, 0, 0, 0
	c.backlog = nil
	c.in.drain()
}

// free releases an entry's frame or slab, if the entry owns it.
func (c *Conn) free(e *entry) {
	switch e.store {
	case inFrame:
		c.mem.Free(e.frame)
	case inSlab:
		c.mem.Return(e.slab())
		c.slabs.slabsSent--
	}
}
