package tcp

import (
	"testing"
	"time"
)

// TestSequenceSpaceGoesRound moves more octets than the sequence space holds, with some losses: old sequence numbers
// that the machine remembers must not be taken for later ones (RFC 9293 §3.4).
func TestSequenceSpaceGoesRound(t *testing.T) {
	const gib = 1 << 30
	for _, sack := range []bool{true, false} {
		l := newLooped(t, 0, func(st *State, _ *Config) { st.SACK, st.Timestamps = sack, sack })
		losses := uint64(0)
		next := 2*gib + gib/2
		for moved := 0; moved < 5*gib+gib/8; {
			moved += l.round()
			l.ab.lose = 0
			if moved >= next {
				l.ab.lose, l.ab.count = 64, 60 // one of the next round
				next += gib / 4
				losses++
			}
		}
		st := l.a.Stats()
		if st.Recoveries != losses || st.Timeouts != 0 || st.Retransmits != losses {
			t.Errorf("SACK %v: %d losses made %d recoveries, %d timeouts, %d retransmissions",
				sack, losses, st.Recoveries, st.Timeouts, st.Retransmits)
		}
	}
}

// TestRecoveryRarelyWaits demands that scattered losses are repaired without the timer: with SACK, over a path of 20
// ms that loses one segment in a hundred, only a lost retransmission or the tail may need it.
func TestRecoveryRarelyWaits(t *testing.T) {
	pl := &plan{seed: 7, loss: 0.01, delay: 10 * time.Millisecond, sack: true, ts: true, noDelay: true,
		scaleA: 4, scaleB: 4, rcvBuf: 1 << 20, share: 64, total: 3 << 20, maxWrite: 1448, mssA: 1460, mssB: 1460}
	p := pl.start(t)
	p.finish(1 << 20)
	for _, e := range []*end{p.a, p.b} {
		st := e.c.Stats()
		segs := float64(pl.total) / 1448
		if st.Timeouts > 5 || st.Recoveries < 10 || float64(st.Retransmits) > 0.03*segs {
			t.Errorf("%s: %+v", e.name, st)
		}
	}
}
