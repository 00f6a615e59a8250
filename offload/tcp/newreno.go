package tcp

import "github.com/stag-rdma/stag/offload/clock"

// NewReno is the congestion control of RFC 5681 with appropriate byte counting
// (RFC 3465).
func NewReno(s Start) Congestion {
	return &newReno{mss: s.MSS, cwnd: s.Cwnd, ssthresh: maxCwnd}
}

const maxCwnd = 1 << 30

// slowStartLimit is L of RFC 3465 §2.2 in segments; see doc.go.
const slowStartLimit = 8

type newReno struct {
	mss, cwnd, ssthresh uint32
	acked               uint32 // octets counted in congestion avoidance
}

// InitialWindow is the initial congestion window of RFC 6928 §2 in octets.
func InitialWindow(mss uint32) uint32 { return min(10*mss, max(2*mss, 14600)) }

func (r *newReno) Window() uint32    { return r.cwnd }
func (r *newReno) Threshold() uint32 { return r.ssthresh }

func (r *newReno) Acked(a Ack) {
	if !a.Limited && !a.Repair {
		return
	}
	n := a.Octets
	if r.cwnd < r.ssthresh {
		limit := uint32(slowStartLimit)
		if a.Repair {
			limit = 1 // RFC 3465 §2.3
		}
		n = min(n, limit*r.mss)
		grow := min(n, r.ssthresh-r.cwnd)
		r.cwnd += grow
		n -= grow
	}
	r.acked += n
	if r.acked >= r.cwnd { // one segment per window
		r.acked -= r.cwnd
		r.cwnd += r.mss
	}
	r.cwnd = min(r.cwnd, maxCwnd)
}

// cut is RFC 5681 §3.1 equation 4.
func (r *newReno) cut(flight uint32) { r.ssthresh = max(flight/2, 2*r.mss) }

func (r *newReno) Loss(_ clock.Instant, flight uint32) {
	r.cut(flight)
	r.cwnd, r.acked = r.ssthresh, 0
}

// Recovered is RFC 6582 §3.2 step 3, full acknowledgement, option 1.
func (r *newReno) Recovered(_ clock.Instant, flight uint32) {
	r.cwnd = min(r.ssthresh, max(flight, r.mss)+r.mss)
}

func (r *newReno) Timeout(_ clock.Instant, flight uint32, repeated bool) {
	if !repeated {
		r.cut(flight)
	}
	r.cwnd, r.acked = r.mss, 0
}

// Idle is RFC 5681 §4.1.
func (r *newReno) Idle(clock.Instant) {
	r.cwnd, r.acked = min(r.cwnd, InitialWindow(r.mss)), 0
}

func (r *newReno) Resize(mss uint32) {
	r.mss = mss
	r.cwnd = max(r.cwnd, mss)
}
