package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// estimator holds the round-trip time and the retransmission timeout (RFC 6298).
// estimator takes one sample per round trip, as the constants of that RFC expect.
type estimator struct {
	srtt, rttvar time.Duration // smoothed round-trip time and its variance; 0: there is no sample yet
	rto          time.Duration // retransmission timeout without backoff
	min, max     time.Duration
	backoff      uint8
	next         seq.Num // the next sample is taken when this number is acknowledged
}

// granularity is G of RFC 6298 §2.3.
const granularity = time.Millisecond

func newEstimator(st *State, cfg *Config) estimator {
	r := estimator{srtt: st.SRTT, rttvar: st.RTTVar, min: cfg.MinRTO, max: cfg.MaxRTO}
	switch {
	case st.RTO != 0:
		r.rto = r.clamp(st.RTO)
	case st.SRTT != 0:
		r.derive()
	default:
		r.rto = r.clamp(time.Second) // §2.1
	}
	return r
}

func (r *estimator) clamp(d time.Duration) time.Duration { return min(max(d, r.min), r.max) }

func (r *estimator) derive() {
	r.rto = r.clamp(r.srtt + max(granularity, 4*r.rttvar))
}

// sample adds a measured round trip (§2.2, §2.3). sample ends the backoff (§5.7).
func (r *estimator) sample(d time.Duration) {
	d = max(d, 1)
	if r.srtt == 0 {
		r.srtt, r.rttvar = d, d/2
	} else {
		r.rttvar += ((r.srtt - d).Abs() - r.rttvar) / 4
		r.srtt = max(r.srtt+(d-r.srtt)/8, 1)
	}
	r.backoff = 0
	r.derive()
}

// current returns the timeout with its backoff (§5.5).
func (r *estimator) current() time.Duration { return doubled(r.rto, r.backoff, r.max) }

// doubled returns d doubled n times. The result is at most limit.
func doubled(d time.Duration, n uint8, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// stamps are the timestamps of a connection (RFC 7323).
type stamps struct {
	on     bool
	base   uint32 // value of this end's timestamp clock at the instant at
	at     clock.Instant
	tick   time.Duration
	recent uint32 // TS.Recent, valid if known
	known  bool
	heard  clock.Instant // time when recent was last updated
}

// staleAfter is the longest time that TS.Recent is believed (RFC 7323 §5.5).
const staleAfter = 24 * 24 * time.Hour

// stale returns how long TS.Recent is believed: at most 2^31 ticks of the timestamp clock, because later timestamps
// of the peer cannot be compared with TS.Recent. stale assumes that both ends have the same tick (TCP_PAWS_WRAP in
// Linux for microseconds).
func (t *stamps) stale() time.Duration { return min(staleAfter, t.tick<<31) }

func newStamps(st *State) stamps {
	t := stamps{on: st.Timestamps, base: st.TSNow, at: st.At, tick: st.TSTick}
	if t.tick == 0 {
		t.tick = time.Millisecond
	}
	if st.HasTSRecent {
		t.recent, t.known, t.heard = st.TSRecent, true, st.At.Add(-st.TSRecentAge)
	}
	return t
}

// now returns the timestamp clock of this end at the given instant.
func (t *stamps) now(at clock.Instant) uint32 {
	return t.base + uint32(at.Sub(t.at)/t.tick)
}

// old reports whether val fails PAWS (§5.3 R1).
func (t *stamps) old(at clock.Instant, val uint32) bool {
	return t.known && int32(val-t.recent) < 0 && at.Sub(t.heard) <= t.stale()
}

// learn implements §4.3 (2) and §5.3 R3 for a segment that has passed old and begins at or before the last ACK sent.
func (t *stamps) learn(at clock.Instant, val uint32) {
	t.recent, t.known, t.heard = val, true, at
}

// trip returns the round trip that an echoed timestamp shows, at least one tick. trip
// returns 0 if this end cannot have sent that timestamp.
func (t *stamps) trip(at clock.Instant, echo uint32) time.Duration {
	ticks := int32(t.now(at) - echo)
	if echo == 0 || ticks < 0 || time.Duration(ticks) > 10*time.Minute/t.tick {
		return 0
	}
	return max(time.Duration(ticks), 1) * t.tick
}
