package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// tuner sizes the receive window to twice the octets that arrive in a round trip (dynamic right-sizing, Fisk and
// Feng 2001, as Linux). tuner uses the shortest round trip of the last seconds, so that the window follows the path
// and not the queue on it. Otherwise the two ends would fill the queue on the path until the queue overflows. Such
// a queue is, for example, the ring of 256 places of a veth pair, or the queue of a switch.
type tuner struct {
	size, most uint32        // the window and its upper limit, in octets
	trip       minimum       // shortest recent round trip, or an upper limit of it
	timing     bool          // a measurement of the round trip runs
	edge       seq.Num       // the measurement ends after the arrival of this number
	edgeAt     clock.Instant // start of the measurement
	stampAt    clock.Instant // time from which the next echoed timestamp is used
	begin      clock.Instant // start of the round trip that is being counted
	taken      uint64        // octets consumed in that round trip
	before     uint64        // octets consumed in the round trip before
	calm       uint64        // octets consumed since most was last set
}

const (
	// firstWindow is the window in segments on an unknown path. firstWindow is also the smallest window after
	// losses on a short path. Such a window fits into the ring of a veth pair, although some of the ring's 256
	// places are returned late and in batches.
	firstWindow = 224

	// nearby is the round trip below which a loss comes from a ring or a switch on this machine or next to it.
	nearby = time.Millisecond

	// tripAge is how long a round trip counts at least. A round trip counts for up to twice that time. The time is
	// short enough to notice soon that packets take a longer path.
	tripAge = 5 * time.Second

	// calmAfter is the number of segments without a loss on a short path after which the window may grow by one
	// segment.
	calmAfter = 1 << 16
)

func (c *Conn) newTuner(now clock.Instant) tuner {
	trip := minimum{now: c.loss.rack.least.value(), since: now}
	return tuner{size: c.leastWindow(), most: c.cfg.RcvBuf, begin: now, trip: trip}
}

func (c *Conn) leastWindow() uint32 { return min(c.cfg.RcvBuf, firstWindow*c.path.peer) }

// timeWindow measures the round trip when octets have arrived in order. The measured time is the time in which a
// whole window arrives, or a shorter time by the timestamp that the peer echoes. Neither time is shorter than the
// round trip.
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

// promised starts the measurement when the last header has moved the right edge. The peer can send octets up to the
// new edge only after it has received that header.
func (c *Conn) promised() {
	if t := &c.tune; !t.timing && c.edge.After(c.rcvAdv) {
		t.timing, t.edge, t.edgeAt = true, c.edge, c.edgeAt
	}
}

// roundTrip returns the shortest known round trip, or 0 if none is known.
func (c *Conn) roundTrip() time.Duration { return c.tune.trip.value() }

// tuneWindow lets the window grow to twice the octets consumed in a round trip, plus twice the increase since the
// round trip before. A sender in slow start is then not limited.
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
	case trip >= nearby: // earlier losses say nothing about the present path
		t.most, t.calm = c.cfg.RcvBuf, 0
	case t.calm >= calmAfter*uint64(c.path.peer):
		t.most, t.calm = min(t.most+c.path.peer, c.cfg.RcvBuf), 0
	}
	t.begin, t.taken, t.before = now, 0, per
	t.size = max(t.size, uint32(min(want, uint64(t.most))))
}

// holeOpened limits the window to its size at a loss, if the path is short.
func (c *Conn) holeOpened() {
	least := c.leastWindow()
	if t := &c.tune; t.size > least && c.roundTrip() < nearby {
		t.size = max(t.size-t.size/8, least)
		t.most, t.calm = t.size, 0
	}
}
