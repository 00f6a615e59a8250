package rdmap

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// MaxRate is the largest Config.Rate in octets per second.
const MaxRate = 1e12

// paceSpan is for how long octets leave without a pause. A longer pause then follows. A
// pause for each segment would need a timer for each segment. A step that comes late by up
// to paceSpan does not lower the rate.
const paceSpan = time.Millisecond

// pace decides when payload may leave, so that it leaves at Config.Rate.
type pace struct {
	paid clock.Instant // time at which an even stream at the rate would have sent all payload that has left
	rest uint64        // nanoseconds beyond paid, multiplied by the rate
	at   clock.Instant // end of the pause; clock.Never: there is no pause
}

// deadline returns the end of the pause, or clock.Never.
func (p *pace) deadline() clock.Instant {
	if p == nil {
		return clock.Never
	}
	return p.at
}

// resume ends a pause whose time has come.
func (p *pace) resume(now clock.Instant) {
	if p.deadline().Due(now) {
		p.at = clock.Never
	}
}

// spend counts n octets that leave now.
func (p *pace) spend(now clock.Instant, n int, rate uint64) {
	if p.paid.Before(now.Add(-paceSpan)) {
		p.paid, p.rest = now.Add(-paceSpan), 0
	}
	p.rest += uint64(n) * uint64(time.Second)
	p.paid = p.paid.Add(time.Duration(p.rest / rate))
	p.rest %= rate
	if now.Add(paceSpan).Before(p.paid) {
		p.at = p.paid
	}
}

// paced reports whether the octets of the current message count against the rate. Those
// are the payload that comes from memory or from a work request.
func (q *QP) paced() bool { return q.out.pace != nil && q.out.nfixed == 0 && q.out.msg.Len != 0 }
