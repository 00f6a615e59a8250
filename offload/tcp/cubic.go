package tcp

import (
	"math"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// The constants of RFC 9438 §4.1 and §4.3. §4.2 gives the largest factor by which a window may grow in one round
// trip.
const (
	cubicC      = 0.4 // C of RFC 9438, in segments per second cubed
	cubicBeta   = 0.7
	cubicAlpha  = 3 * (1 - cubicBeta) / (1 + cubicBeta)
	cubicFaster = 1.5
)

// NewCubic makes the congestion control of RFC 9438, with the slow start of RFC 9406. Windows are in octets here. The
// RFC counts segments.
func NewCubic(s Start) Congestion {
	c := &cubic{mss: s.MSS}
	c.cwnd, c.ssthresh = float64(s.Cwnd), min(s.Threshold, maxCwnd)
	c.slow.over = c.ssthresh < maxCwnd
	return c
}

type cubic struct {
	mss uint32
	cubicState
	before cubicState // state before the last reduction (RFC 9438 §4.9)
	slow   hystart
}

// cubicState is the state that a reduction changes. A stage is a period of congestion avoidance between two
// reductions. Slow start does not belong to a stage.
type cubicState struct {
	cwnd     float64 // congestion window in octets, with the fraction that ACKs have added so far
	ssthresh uint32
	prior    float64 // cwnd_prior: cwnd before the last reduction; 0: none yet
	wMax     float64 // window at which the curve is flat; 0: the window at the start of the stage

	staged bool          // a stage has begun, and the fields below are valid
	epoch  clock.Instant // start of the stage; idle periods move it forward
	last   clock.Instant // instant at which the age of the stage was last read
	origin float64       // W_max of the stage
	k      float64       // time from epoch until the curve reaches origin, in seconds
	wEst   float64       // window that NewReno would have now
}

func (c *cubic) Name() string      { return "cubic" }
func (c *cubic) Window() uint32    { return uint32(c.cwnd) }
func (c *cubic) Threshold() uint32 { return c.ssthresh }

func (c *cubic) Acked(a Ack) {
	slowing := c.cwnd < float64(c.ssthresh)
	if slowing && c.slow.observe(&a) {
		c.ssthresh, slowing = uint32(c.cwnd), false
	}
	if !a.Limited && !a.Repair {
		c.pause(a.Now)
		return
	}
	n := a.Octets
	if slowing {
		n = c.start(&a)
	}
	if n > 0 {
		c.avoid(&a, float64(n))
	}
	c.cwnd = min(c.cwnd, maxCwnd)
}

// start grows the window in slow start. start returns how many octets are left for congestion avoidance.
func (c *cubic) start(a *Ack) uint32 {
	limit := uint32(slowStartLimit)
	if a.Repair {
		limit = 1 // RFC 3465 §2.3
	}
	c.staged = false
	grow := min(a.Octets, limit*c.mss) / c.slow.divisor()
	room := c.ssthresh - uint32(c.cwnd)
	if grow < room {
		c.cwnd += float64(grow)
		return 0
	}
	c.cwnd = float64(c.ssthresh)
	return grow - room
}

// avoid performs congestion avoidance (RFC 9438 §4.3 to §4.5).
func (c *cubic) avoid(a *Ack, n float64) {
	if !c.staged {
		c.begin(a.Now)
	}
	c.last = a.Now
	t := a.Now.Sub(c.epoch)
	alpha := cubicAlpha
	if c.wEst >= c.prior {
		alpha = 1
	}
	c.wEst += alpha * float64(c.mss) * n / c.cwnd
	if c.curve(t) < c.wEst { // the Reno-friendly region
		c.cwnd = max(c.cwnd, c.wEst)
		return
	}
	target := min(max(c.curve(t+a.SRTT), c.cwnd), cubicFaster*c.cwnd)
	c.cwnd += (target - c.cwnd) / c.cwnd * n
}

// begin begins a stage (RFC 9438 §4.2). If no larger window is known, the curve starts at its flat part. This is the
// case after slow start without a loss (§4.10) and after a timeout (§4.8).
func (c *cubic) begin(now clock.Instant) {
	c.staged, c.epoch = true, now
	c.wEst, c.origin, c.k = c.cwnd, c.cwnd, 0
	if c.wMax > c.cwnd {
		c.origin = c.wMax
		c.k = math.Cbrt((c.wMax - c.cwnd) / float64(c.mss) / cubicC)
	}
}

// curve returns W_cubic(t), equation 1 of RFC 9438 §4.2.
func (c *cubic) curve(t time.Duration) float64 {
	d := t.Seconds() - c.k
	return c.origin + cubicC*float64(c.mss)*d*d*d
}

// pause excludes the time since the last growth from the stage, because the window had no need to grow then (RFC 9438
// §5.8).
func (c *cubic) pause(now clock.Instant) {
	if c.staged {
		c.epoch = c.epoch.Add(now.Sub(c.last))
		c.last = now
	}
}

// cut implements RFC 9438 §4.6, and the fast convergence of §4.7. With fast convergence, a flow that has not
// reached the previous W_max again leaves room for other flows.
func (c *cubic) cut(flight uint32) {
	c.before = c.cubicState
	c.slow.over = true
	c.prior = c.cwnd
	if c.cwnd < c.wMax {
		c.wMax = c.cwnd * (1 + cubicBeta) / 2
	} else {
		c.wMax = c.cwnd
	}
	c.ssthresh = min(max(uint32(float64(flight)*cubicBeta), 2*c.mss), maxCwnd)
	c.staged = false
}

func (c *cubic) Loss(_ clock.Instant, flight uint32) {
	c.cut(flight)
	c.cwnd = float64(c.ssthresh)
}

// Recovered implements RFC 6582 §3.2 step 3, full acknowledgement, option 1.
func (c *cubic) Recovered(_ clock.Instant, flight uint32) {
	c.cwnd = float64(min(c.ssthresh, max(flight, c.mss)+c.mss))
}

// Timeout implements RFC 9438 §4.8.
func (c *cubic) Timeout(_ clock.Instant, flight uint32, repeated bool) {
	if !repeated {
		c.cut(flight)
	}
	c.cwnd, c.wMax, c.staged = float64(c.mss), 0, false
}

// Undo implements RFC 9438 §4.9. Growth since the reduction stays.
func (c *cubic) Undo(clock.Instant) {
	cwnd := c.cwnd
	c.cubicState = c.before
	c.cwnd = max(c.cwnd, cwnd)
	c.slow.over = c.ssthresh < maxCwnd
}

// Idle implements RFC 9438 §5.8, and RFC 5681 §4.1 with the decay of RFC 2861.
func (c *cubic) Idle(now clock.Instant, periods int) {
	c.pause(now)
	if periods > 0 {
		cwnd := uint32(c.cwnd)
		c.ssthresh = remembered(c.ssthresh, cwnd)
		c.cwnd, c.staged = float64(decayed(cwnd, c.mss, periods)), false
	}
}

func (c *cubic) Resize(mss uint32) {
	c.mss = mss
	c.cwnd = max(c.cwnd, float64(mss))
}
