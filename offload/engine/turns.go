package engine

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// Flows take turns if they have more to send than there is room for. Each flow sends a
// burst, and then waits until all others of its client have had their turn. The clients of
// the process take turns too (line). Segments in bursts cost
// both ends less. For every segment of a burst except the first, the state of the
// connection and the target memory are in the caches. One ACK acknowledges many
// segments.

const (
	// turn is how many frames a flow may fill before other flows have their turn.
	turn = 32

	// turnsMost is about how many packets a step sends in turns. The step then ends, so
	// that arrivals are processed. The frames that they acknowledge are still in the
	// caches.
	turnsMost = 256

	// slack is how much longer than twice the shortest round trip a segment may be in
	// flight before the limit on frames falls.
	slack = 250 * time.Microsecond

	// patience is how long the engine waits for frames to come back before the limit
	// rises.
	patience = time.Millisecond
)

// flight limits how many frames all flows together have in flight while some wait for
// their turn. The peers' windows allow far more frames than the peers can process.
// Those frames would wait in the peers' receive rings, leave the caches there, and be
// lost when the rings are full.
//
// The limit rises by a quarter of the frames that come back in time. The limit falls by
// a quarter of the frames that come back late. If no frame comes back at all, because
// silent peers have them all, the limit rises by a burst.
type flight struct {
	least, all int // smallest and largest value of the limit, in frames
	most       int
	quarters   int           // quarters of a frame by which the limit must still rise
	since      clock.Instant // time when a frame last came back, or when the limit rose because no frame came back
}

func newFlight(pool int) flight { return flight{least: pool / 8, most: pool / 8, all: pool} }

// acked handles n frames that have come back. trip is how long the last of them was in
// flight, or 0 if that is unknown. least is the shortest round trip.
func (l *flight) acked(now clock.Instant, n int, trip, least time.Duration, waiting bool) {
	l.since = now
	if !waiting || trip == 0 {
		return
	}
	if trip > 2*least+slack {
		n = -n
	}
	l.quarters += n
	l.most = max(min(l.most+l.quarters/4, l.all), l.least)
	l.quarters %= 4
}

// look raises the limit if no flow can continue otherwise.
func (l *flight) look(now clock.Instant, lent int, waiting bool) {
	switch {
	case !waiting:
		l.since = now
	case lent >= l.most && now.Sub(l.since) >= patience:
		l.most, l.since = lent+turn, now
	}
}

// mayLend reports whether more frames may be in flight. Only the peer and the network
// limit a single flow.
func (e *Engine) mayLend() bool {
	return (e.open == 1 || e.frames.lent-e.line.stuck() < e.flight.most) && e.roomy()
}

// allowance returns how many frames a flow may fill that is served out of turn because
// of an event. allowance returns 0 while other flows wait.
func (e *Engine) allowance() int {
	if e.line.n != 0 || len(e.retry) != 0 || !e.mayLend() {
		return 0
	}
	return turn
}

// unload frees frames of a flow that could fill more than it may hold. The flow
// continues when the frames are back. unload counts no frame as acknowledged.
func (e *Engine) unload(f *flow) {
	back := f.back
	if f.conn.Unload(turn) != 0 {
		f.wants, e.more = true, true
	}
	f.back = back
}

// resume serves the flows whose segments found no room, oldest first, as long as there
// is room.
func (e *Engine) resume() {
	stuck := e.retry
	e.retry = e.retry[:0] // e.retry never gets longer than the part of stuck that was read, so that both may use the same memory
	for i, f := range stuck {
		if !e.roomy() {
			e.retry = append(e.retry, stuck[i:]...)
			return
		}
		f.stuck = false
		e.serve(f, 0)
	}
}

// takeTurns lets the flows in line fill frames and send them, in order.
func (e *Engine) takeTurns() {
	e.line.unpark()
	e.flight.look(e.now, e.frames.lent-e.line.stuck(), e.line.n != 0)
	begin := e.count.TxPackets
	for e.line.n != 0 && len(e.retry) == 0 && e.mayLend() && e.frames.stock(reserve) {
		if e.count.TxPackets-begin >= turnsMost {
			e.more = true
			return
		}
		f := e.line.next()
		g := e.line.of(f)
		e.serve(f, turn)
		e.line.charge(g, turn-f.quota)
	}
}
