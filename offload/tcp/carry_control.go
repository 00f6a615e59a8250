package tcp

import (
	"fmt"
	"math"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// controlRecord is the state of a congestion control. Kind says which one it is.
type controlRecord struct {
	Kind          uint8
	MSS           uint32
	Reno, WasReno renoRecord
	Cubic, Was    cubicRecord
	Slow          hystartRecord
}

// Kinds of controlRecords.
const (
	controlNone = iota // the other process makes a new one
	controlReno
	controlCubic
)

type renoRecord struct{ Cwnd, Ssthresh, Acked uint32 }

type cubicRecord struct {
	Cwnd            float64
	Ssthresh        uint32
	Prior, WMax     float64
	Staged          bool
	Epoch, Last     age
	Origin, K, WEst float64
}

type hystartRecord struct {
	Over, Begun, CSS         bool
	Left                     int32
	End                      seq.Num
	Samples                  int32
	Trip, Previous, Baseline time.Duration
}

func controlRecordOf(c Congestion, now clock.Instant) controlRecord {
	switch c := c.(type) {
	case *newReno:
		return controlRecord{Kind: controlReno, MSS: c.mss, Reno: c.renoState.record(), WasReno: c.before.record()}
	case *cubic:
		h := &c.slow
		return controlRecord{
			Kind: controlCubic, MSS: c.mss, Cubic: c.cubicState.record(now), Was: c.before.record(now),
			Slow: hystartRecord{Over: h.over, Begun: h.begun, CSS: h.css, Left: int32(h.left), End: h.end,
				Samples: int32(min(h.samples, math.MaxInt32)), Trip: h.trip, Previous: h.previous, Baseline: h.baseline},
		}
	}
	return controlRecord{}
}

func (r renoState) record() renoRecord { return renoRecord{r.cwnd, r.ssthresh, r.acked} }

func (r renoRecord) state() renoState { return renoState{r.Cwnd, r.Ssthresh, r.Acked} }

func (c *cubicState) record(now clock.Instant) cubicRecord {
	return cubicRecord{
		Cwnd: c.cwnd, Ssthresh: c.ssthresh, Prior: c.prior, WMax: c.wMax, Staged: c.staged,
		Epoch: ageOf(c.epoch, now), Last: ageOf(c.last, now), Origin: c.origin, K: c.k, WEst: c.wEst,
	}
}

func (r *cubicRecord) state(now clock.Instant) cubicState {
	return cubicState{
		cwnd: r.Cwnd, ssthresh: r.Ssthresh, prior: r.Prior, wMax: r.WMax, staged: r.Staged,
		epoch: r.Epoch.at(now), last: r.Last.at(now), origin: r.Origin, k: r.K, wEst: r.WEst,
	}
}

// sane reports whether all numbers are in the range that a cubic keeps them in. least is
// the smallest window: the state before the first reduction is all zero.
func (r *cubicRecord) sane(least float64) bool {
	const most = 4 * maxCwnd
	for _, v := range []float64{r.Prior, r.WMax, r.Origin, r.K} {
		if !(v >= 0 && v <= most) { // false for NaN as well
			return false
		}
	}
	return r.Cwnd >= least && r.Cwnd <= maxCwnd && r.WEst >= 0 && r.WEst <= math.MaxUint32*1e3 && r.Epoch.sane() && r.Last.sane()
}

// control checks r, and makes the congestion control. It returns nil if there is none.
func (r *controlRecord) control(now clock.Instant) (Congestion, error) {
	bad := fmt.Errorf("%w: the congestion control %d is out of range", ErrEncoding, r.Kind)
	if r.Kind != controlNone && (r.MSS == 0 || r.MSS > math.MaxUint16) {
		return nil, bad
	}
	switch r.Kind {
	case controlNone:
		return nil, nil
	case controlReno:
		if r.Reno.Cwnd == 0 || r.Reno.Cwnd > maxCwnd || r.WasReno.Cwnd > maxCwnd || r.Reno.Ssthresh > maxCwnd || r.WasReno.Ssthresh > maxCwnd {
			return nil, bad
		}
		return &newReno{mss: r.MSS, renoState: r.Reno.state(), before: r.WasReno.state()}, nil
	case controlCubic:
		s := &r.Slow
		if !r.Cubic.sane(1) || !r.Was.sane(0) || r.Cubic.Ssthresh > maxCwnd || r.Was.Ssthresh > maxCwnd ||
			s.Left < 0 || s.Samples < 0 || s.Trip < 0 || s.Previous < 0 || s.Baseline < 0 {
			return nil, bad
		}
		return &cubic{mss: r.MSS, cubicState: r.Cubic.state(now), before: r.Was.state(now),
			slow: hystart{over: s.Over, begun: s.Begun, css: s.CSS, left: int(s.Left), end: s.End,
				samples: int(s.Samples), trip: s.Trip, previous: s.Previous, baseline: s.Baseline}}, nil
	}
	return nil, bad
}
