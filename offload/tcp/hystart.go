package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/seq"
)

// The constants of RFC 9406 §4.3.
const (
	minTripRise = 4 * time.Millisecond  // MIN_RTT_THRESH
	maxTripRise = 16 * time.Millisecond // MAX_RTT_THRESH
	tripPart    = 8                     // MIN_RTT_DIVISOR
	tripSamples = 8                     // N_RTT_SAMPLE
	cssDivisor  = 4                     // CSS_GROWTH_DIVISOR
	cssRounds   = 5                     // CSS_ROUNDS
)

// hystart is HyStart++ (RFC 9406). hystart ends the first slow start when round trips
// grow longer, before the queue on the path overflows. Conservative slow start (CSS)
// comes in between, in case the round trips grew for another reason.
type hystart struct {
	over  bool // the first slow start has ended
	begun bool
	css   bool
	left  int     // remaining rounds of CSS, including this one
	end   seq.Num // windowEnd: the round ends when this number is acknowledged

	samples  int           // number of samples of this round
	trip     time.Duration // shortest round trip of this round; 0: none
	previous time.Duration // shortest round trip of the previous round
	baseline time.Duration // shortest round trip of the round that began CSS
}

// divisor returns the number by which the growth of the window is divided.
func (h *hystart) divisor() uint32 {
	if h.css {
		return cssDivisor
	}
	return 1
}

// observe handles an acknowledgement in slow start. observe returns true once, when
// slow start must end.
func (h *hystart) observe(a *Ack) (end bool) {
	if h.over {
		return false
	}
	if !h.begun || a.Una.AtOrAfter(h.end) {
		h.round(a.Nxt)
		if h.over {
			return true
		}
	}
	if a.RTT > 0 {
		h.samples++
		if h.trip == 0 || a.RTT < h.trip {
			h.trip = a.RTT
		}
	}
	if h.samples >= tripSamples {
		h.judge()
	}
	return false
}

// round begins a round. The round ends when the number end is acknowledged.
func (h *hystart) round(end seq.Num) {
	if h.css {
		h.left--
		if h.left == 0 {
			h.over, h.css = true, false
			return
		}
	}
	h.begun, h.end = true, end
	h.previous, h.trip, h.samples = h.trip, 0, 0
}

// judge enters CSS when round trips have grown, and leaves CSS when they are as short
// as before.
func (h *hystart) judge() {
	switch {
	case h.css && h.trip < h.baseline:
		h.css = false
	case !h.css && h.previous > 0 && h.trip >= h.previous+min(max(h.previous/tripPart, minTripRise), maxTripRise):
		h.css, h.left, h.baseline = true, cssRounds, h.trip
	}
}
