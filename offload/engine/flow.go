package engine

import (
	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// flow is one connection at one engine: parked while it is being taken over,
// live while it has a connection, lingering in TIME-WAIT. It implements
// tcp.Memory and tcp.Output for its connection. Owned by the token's holder.
type flow struct {
	e   *Engine
	id  FlowID
	key bpf.FlowKey

	conn *tcp.Conn
	told tcp.Stats // what of conn's is in the engine's totals
	ulp  stream.ULP
	head wire.HeaderTemplate

	parked []port.Frame // arrivals before the connection is installed
	heard  func()       // to be called when the first of them arrives; nil: no longer
	isNews bool         // it has arrived: f is on e.news until the step is over
	news   *flow        // the next of that list

	lingers bool
	linger  tcp.TimeWait

	slabs   int  // slabs the connection holds
	held    int  // transmit frames the connection holds
	guests  int  // receive frames of other ports that it holds
	back    int  // of those it held, how many have come back since it was served
	quota   int  // of those, how many it may take before it waits for its turn
	dirty   bool // is on e.dirty
	stuck   bool // is on e.retry
	waits   bool // is in e.line
	refused bool // a segment found no room, the last time that it was served
	wants   bool // a frame was refused to it, likewise
	short   bool // there was none, or it had its share

	unsummed      bool          // the peer's last segment was refused as PartialChecksum, ...
	unsummedSince clock.Instant // ... as was every one since then

	due   clock.Instant // deadline, while place >= 0
	place int           // in the timers' heap; -1: not there
}

// minShare and maxShare bound how many receive frames a flow may hold. The
// share is what half the pool allows among the flows that are open. What a window
// has more is kept in slabs.
//
// leastShare is the bound when frames are short: a window of fewer would be
// less than a segment once it is rounded to the unit that windows are told in,
// and the peer would send by its timer only.
const (
	minShare   = 32
	maxShare   = 512
	leastShare = 2
)

// Share implements tcp.Memory. Once a quarter of the pool is held, by flows
// whose upper layers do not read, a flow may hold a sixteenth of what is left
// and no more: so something is left for flows that read, however long the
// others hold theirs. Once three quarters are held, flows keep nothing beyond the
// step that it came in but what fits into memory of their own (Conn.Unburden).
func (f *flow) Share() int {
	e := f.e
	if out := e.out(); out >= e.rxPool/4 {
		return min(max((e.rxPool-out)/16, leastShare), maxShare)
	}
	return e.rxShare
}

// opened counts n connections more, or less, and divides the frames anew: the
// shares are asked for several times for each packet.
func (e *Engine) opened(n int) {
	e.open += n
	e.rxPool = int(e.limits.RxFrames)
	e.scarce = e.rxPool - e.rxPool/4
	e.rxShare = min(max(e.rxPool/2/max(1, e.open), minShare), maxShare)
	e.txFair = max(8, pool(e.limits)/max(1, e.open))
}

// Each queue has a pool of its own, and a flow may hold frames of any: a segment
// arrives where the card sends it. So every engine counts what is held of its pool,
// by its own connections and by those of other engines.

// keep counts n frames like fr that connections of this engine hold more, or less.
func (e *Engine) keep(fr port.Frame, n int) {
	if fr.Home == e.lane {
		e.kept += n
		return
	}
	e.foreign += n
	e.lanes[fr.Home].away.Add(int32(n))
}

// out is how many frames are held of this engine's pool or, if its connections hold
// frames of other pools, of the pool of which most are.
func (e *Engine) out() int { return max(e.kept+int(e.away.Load()), e.strain) }

// lookAtPools tells the other engines how much is held of our pool, and looks at
// theirs if we hold some of that.
func (e *Engine) lookAtPools() {
	e.strain = 0
	e.keptHere.Store(int32(e.kept))
	if e.foreign == 0 {
		return
	}
	for _, p := range e.lanes {
		if p != e {
			e.strain = max(e.strain, int(p.keptHere.Load()+p.away.Load()))
		}
	}
}

// Take implements tcp.Memory: one transmit frame for payload, if it is the
// flow's turn, within its share of the pool and above what is reserved for
// acknowledgements.
func (f *flow) Take() (port.Frame, bool) {
	e := f.e
	if f.quota == 0 {
		f.wants = true
		return port.Frame{}, false
	}
	if f.held >= e.txShare() || !e.stock(reserve) {
		// A flow that holds frames is served when they are acknowledged. To look
		// again by time would keep the processor busy with flows whose peers do
		// not read.
		f.wants = f.wants || f.held == 0
		f.short = true
		e.count.NoTxFrame++
		return port.Frame{}, false
	}
	f.quota--
	f.held++
	e.lent++
	return e.takeSpare(), true
}

// Free implements tcp.Memory.
func (f *flow) Free(fr port.Frame) {
	f.held--
	f.e.lent--
	f.back++
	f.e.freed = append(f.e.freed, fr)
}

// Bytes implements tcp.Memory.
func (f *flow) Bytes(fr port.Frame) []byte { return f.e.port.Bytes(fr) }

// keep notes that the connection keeps a receive frame.
func (f *flow) keep(fr port.Frame) {
	f.e.keep(fr, 1)
	if !f.e.ofOurPort(fr) {
		f.guests++
	}
}

// Guest implements tcp.Guests: a frame of another port is used in place, and not
// kept beyond the step. Otherwise the shares of a port's frames would shrink with
// each port more.
func (f *flow) Guest(fr port.Frame) bool { return !f.e.ofOurPort(fr) }

// Release implements tcp.Memory: a receive frame that the connection kept.
func (f *flow) Release(fr port.Frame) {
	f.e.keep(fr, -1)
	if !f.e.ofOurPort(fr) {
		f.guests--
	}
	f.e.release(fr)
}

// txShare is how many transmit frames one flow may hold: a sixteenth of what
// is left, so that many flows can send a bunch each, one after the other. It may
// hold its part of the pool in any case, until three quarters are lent, to flows
// whose peers do not read.
func (e *Engine) txShare() int {
	all := pool(e.limits)
	share := (all - e.lent) / 16
	if e.lent < all-all/4 {
		return max(share, e.txFair)
	}
	return max(share, 1)
}

// pool is how many transmit frames there are for payload.
func pool(l port.Limits) int { return int(l.TxFrames) - 2*reserve }

// stock makes sure that more than above frames are spare.
func (e *Engine) stock(above int) bool {
	if len(e.spare) <= above {
		n := len(e.spare)
		e.spare = e.spare[:n+e.port.Take(e.spare[n:cap(e.spare)])]
	}
	return len(e.spare) > above
}

// takeSpare takes one of the spare frames; stock has said that there is one.
func (e *Engine) takeSpare() port.Frame {
	n := len(e.spare) - 1
	fr := e.spare[n]
	e.spare = e.spare[:n]
	return fr
}
