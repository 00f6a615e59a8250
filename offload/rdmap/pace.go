package rdmap

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// MaxRate is the largest rate of a QP in octets per second.
const MaxRate = 1e12

// paceSpan is for how long octets leave without a pause. A longer pause then follows. A
// pause for each segment would need a timer for each segment. A step that comes late by up
// to paceSpan does not lower the rate.
const paceSpan = time.Millisecond

// pace decides when payload may leave, so that it leaves at the QP's rate.
type pace struct {
	wanted atomic.Uint64 // rate of SetRate, which any goroutine may call

	// The holder of the step owns these fields.
	rate uint64        // rate that the step keeps, in octets per second; 0: no limit
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

// resume ends a pause whose time has come. A new rate ends every pause, because a pause at
// a low rate may be long.
func (p *pace) resume(now clock.Instant) {
	switch {
	case p == nil:
	case p.rate != p.wanted.Load():
		p.rate, p.paid, p.rest, p.at = p.wanted.Load(), now.Add(-paceSpan), 0, clock.Never
	case p.at.Due(now):
		p.at = clock.Never
	}
}

// spend counts n octets that leave now.
func (p *pace) spend(now clock.Instant, n int) {
	if p.paid.Before(now.Add(-paceSpan)) {
		p.paid, p.rest = now.Add(-paceSpan), 0
	}
	p.rest += uint64(n) * uint64(time.Second)
	p.paid = p.paid.Add(time.Duration(p.rest / p.rate))
	p.rest %= p.rate
	if now.Add(paceSpan).Before(p.paid) {
		p.at = p.paid
	}
}

// paced reports whether the octets of the current message count against the rate. Those
// are the payload that comes from memory or from a work request.
func (q *QP) paced() bool {
	p := q.out.pace.Load()
	return p != nil && p.rate != 0 && q.out.nfixed == 0 && q.out.msg.Len != 0
}

// SetRate changes the rate of the QP to octets per second, at most MaxRate. 0 means no
// limit. The next step keeps the new rate. Any goroutine may call SetRate.
func (q *QP) SetRate(rate uint64) {
	p := q.out.pace.Load()
	if p == nil && rate != 0 {
		q.out.pace.CompareAndSwap(nil, new(pace)) // a concurrent SetRate may have been first
		p = q.out.pace.Load()
	}
	if p != nil {
		p.wanted.Store(rate)
	}
}

// Rate returns the rate of the QP in octets per second. 0 means no limit.
func (q *QP) Rate() uint64 {
	if p := q.out.pace.Load(); p != nil {
		return p.wanted.Load()
	}
	return 0
}
