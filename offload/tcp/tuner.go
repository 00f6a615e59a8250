package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// tuner sizes the receive window: twice what a round trip brings (dynamic
// right-sizing, Fisk and Feng 2001, as Linux). It takes the shortest round trip of
// the last seconds, so the window follows the path and not the queue on it. The two
// ends of a veth pair, whose ring has 256 places, or of a switch would otherwise
// fill what lies between them until it overflows.
type tuner struct {
	size, most uint32        // octets: what the window may be, and the bound of that
	trip       minimum       // round trip, or longer
	timing     bool          // once ...
	edge       seq.Num       // ... this has arrived, a round trip has passed ...
	edgeAt     clock.Instant // ... since then
	stampAt    clock.Instant // when a timestamp is looked at again
	begin      clock.Instant // of the round trip that is counted
	taken      uint64        // octets consumed in it ...
	before     uint64        // ... and in the one before
	calm       uint64        // octets consumed since most was last set
}

const (
	// firstWindow is the window in segments while nothing is known of the path, and
	// the least that losses on a short path make of it. It fits into the ring of a
	// veth pair, some of whose 256 places are given back in bunches, late.
	firstWindow = 224

	// nearby is a round trip so short that losses are those of a ring or a switch
	// right here.
	nearby = time.Millisecond

	// tripAge is how long a round trip counts, and up to twice that: no longer than it
	// takes to see that packets go a longer way now.
	tripAge = 5 * time.Second

	// calmAfter is how many segments come without a loss on such a path until the
	// window may have one more.
	calmAfter = 1 << 16
)

func (c *Conn) newTuner(now clock.Instant) tuner {
	trip := minimum{now: c.rack.least.value(), since: now}
	return tuner{size: c.leastWindow(), most: c.cfg.RcvBuf, begin: now, trip: trip}
}

func (c *Conn) leastWindow() uint32 { return min(c.cfg.RcvBuf, firstWindow*c.path.peer) }

// timeWindow measures the round trip when octets have arrived in order: it is how
// long a window takes to arrive, or less by the timestamp that the peer echoes.
// Neither is shorter than the round trip.
func (c *Conn) timeWindow(now clock.Instant, s *Segment) {
	t := &c.tune
	if t.timing && c.rcvNxt.AtOrAfter(t.edge) {
		t.timing = false
		t.trip.take(now, now.Sub(t.edgeAt), tripAge)
	}
	if c.stamp.on && t.stampAt.Due(now) {
		if d := c.stamp.trip(now, s.TSEcr); d != 0 {
			t.trip.take(now, d+c.stamp.tick, tripAge)
		}
		t.stampAt = now.Add(max(t.trip.value(), nearby))
	}
}

// promised starts the measurement when the last header moves the right edge: the
// peer can send what lies before that only when it has heard of it.
func (c *Conn) promised() {
	if t := &c.tune; !t.timing && c.edge.After(c.rcvAdv) {
		t.timing, t.edge, t.edgeAt = true, c.edge, c.edgeAt
	}
}

// roundTrip is the shortest one that is known of; 0: none.
func (c *Conn) roundTrip() time.Duration { return c.tune.trip.value() }

// tuneWindow lets the window grow to twice what was consumed in a round trip, and
// to twice more by what that was more than the time before: a sender in slow start is
// not held up.
func (c *Conn) tuneWindow(now clock.Instant) {
	t, trip := &c.tune, c.roundTrip()
	took := now.Sub(t.begin)
	if trip == 0 || took < trip {
		return
	}
	per := uint64(float64(t.taken) * float64(trip) / float64(took))
	want := 2*per + 16*uint64(c.path.peer)
	if per > t.before {
		want += 2 * (per - t.before)
	}
	switch t.calm += t.taken; {
	case trip >= nearby: // losses of before say nothing about the path of now
		t.most, t.calm = c.cfg.RcvBuf, 0
	case t.calm >= calmAfter*uint64(c.path.peer):
		t.most, t.calm = min(t.most+c.path.peer, c.cfg.RcvBuf), 0
	}
	t.begin, t.taken, t.before = now, 0, per
	t.size = max(t.size, uint32(min(want, uint64(t.most))))
}

// holeOpened bounds the window by what it was when a segment got lost, if that
// happened nearby.
func (c *Conn) holeOpened() {
	least := c.leastWindow()
	if t := &c.tune; t.size > least && c.roundTrip() < nearby {
		t.size = max(t.size-t.size/8, least)
		t.most, t.calm = t.size, 0
	}
}
