package tcp

import "github.com/stag-rdma/stag/offload/clock"

// NewReno makes the congestion control of RFC 5681 with appropriate byte counting (RFC
// 3465).
func NewReno(s Start) Congestion {
	return &newReno{mss: s.MSS, renoState: renoState{cwnd: s.Cwnd, ssthresh: min(s.Threshold, maxCwnd)}}
}

type newReno struct {
	mss uint32
	renoState
	before renoState // state before the last reduction
}

type renoState struct {
	cwnd, ssthresh uint32
	acked          uint32 // octets counted in congestion avoidance
}

func (r *newReno) Name() string      { return "reno" }
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
	if r.acked >= r.cwnd { // the window grows by one segment for each window of acknowledged octets
		r.acked -= r.cwnd
		r.cwnd += r.mss
	}
	r.cwnd = min(r.cwnd, maxCwnd)
}

// cut implements RFC 5681 §3.1 equation 4.
func (r *newReno) cut(flight uint32) {
	r.before = r.renoState
	r.ssthresh = max(flight/2, 2*r.mss)
}

func (r *newReno) Loss(_ clock.Instant, flight uint32) {
	r.cut(flight)
	r.cwnd, r.acked = r.ssthresh, 0
}

// Recovered implements RFC 6582 §3.2 step 3, full acknowledgement, option 1.
func (r *newReno) Recovered(_ clock.Instant, flight uint32) {
	r.cwnd = min(r.ssthresh, max(flight, r.mss)+r.mss)
}

func (r *newReno) Timeout(_ clock.Instant, flight uint32, repeated bool) {
	if !repeated {
		r.cut(flight)
	}
	r.cwnd, r.acked = r.mss, 0
}

// Undo restores the windows before the reduction. Growth since then stays.
func (r *newReno) Undo(clock.Instant) {
	r.cwnd = max(r.cwnd, r.before.cwnd)
	r.ssthresh, r.acked = r.before.ssthresh, r.before.acked
}

// Idle implements RFC 5681 §4.1 with the decay of RFC 2861.
func (r *newReno) Idle(_ clock.Instant, periods int) {
	if periods > 0 {
		r.ssthresh = remembered(r.ssthresh, r.cwnd)
		r.cwnd, r.acked = decayed(r.cwnd, r.mss, periods), 0
	}
}

func (r *newReno) Resize(mss uint32) {
	r.mss = mss
	r.cwnd = max(r.cwnd, mss)
}
