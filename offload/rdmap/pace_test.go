package rdmap

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/work"
)

// departures are the times and the payloads of segments that have left.
type departures struct {
	at    []clock.Instant
	n     []int
	total int
}

// depart runs the machine at each of its deadlines until all requests have completed. late
// returns by how much a step is late.
func (s *script) depart(late func() time.Duration) (d departures) {
	s.Helper()
	for {
		s.turn()
		for _, f := range s.st.out {
			n := len(f) - 2 - 14 - 4 // headers and CRC of a tagged FPDU without padding
			d.at, d.n, d.total = append(d.at, s.now), append(d.n, n), d.total+n
		}
		s.st.out = nil
		if s.q.Drained() {
			return d
		}
		next := s.q.Deadline()
		if next == clock.Never || !s.now.Before(next) {
			s.Fatalf("octets wait, it is %v, and the deadline is %v", s.now, next)
		}
		s.now = next.Add(late())
	}
}

// within checks that in every time at most rate*(time + 2 spans) octets and one segment
// have left.
func (d *departures) within(t *testing.T, rate uint64, segment int) {
	t.Helper()
	for i := range d.at {
		sum := 0
		for j := i; j < len(d.at); j++ {
			sum += d.n[j]
			if most := float64(rate)*(d.at[j].Sub(d.at[i])+2*paceSpan).Seconds() + float64(segment); float64(sum) > most {
				t.Fatalf("%d octets in %v: more than %.0f", sum, d.at[j].Sub(d.at[i]), most)
			}
		}
	}
}

// A QP sends at its rate: not more in any window, and not less in all, also if steps are
// late by up to a span.
func TestRate(t *testing.T) {
	const length = 4 * 359 * 41 // no padding
	for _, rate := range []uint64{1000, 1e6, 33333333, 1e8, 1e10} {
		for name, most := range map[string]int64{"in time": 1, "late": int64(paceSpan)} {
			r := rand.New(rand.NewPCG(rate, 1))
			s := open(t, func(u *setup) { u.Rate = rate }, withQueues(64), withCQ(128))
			s.heard()
			var wrs []work.SendWR
			for i := range 16 {
				wrs = append(wrs, work.SendWR{ID: uint64(i), Op: work.WRWrite, Flags: work.Signaled, SGL: []work.SGE{s.at(0, length)}})
			}
			begin := s.now
			s.posts(wrs...)
			d := s.depart(func() time.Duration { return time.Duration(r.Int64N(most)) })
			d.within(t, rate, 1440)
			if d.total != 16*length {
				t.Fatalf("rate %d: %d octets have left", rate, d.total)
			}
			ideal := time.Duration(float64(d.total) / float64(rate) * 1e9)
			if took := s.now.Sub(begin); took > ideal+ideal/100+3*paceSpan {
				t.Errorf("rate %d, %s: %d octets took %v, want %v", rate, name, d.total, took, ideal)
			}
		}
	}
}

// Responses to Reads count against the rate as well. Requests without payload do not wait.
func TestRateOfResponses(t *testing.T) {
	s := open(t, func(u *setup) { u.Rate = 1e6 })
	s.gets(readRequest(1, 5, 9, 4000, uint32(s.all), regionStart))
	if n := len(s.st.out); n != 2 {
		t.Fatalf("%d segments of a Response have left, want 2", n)
	}
	s.st.out = nil
	s.pass(10 * time.Millisecond)
	if n := len(s.st.out); n != 1 {
		t.Fatalf("%d segments of a Response have left, want the last one", n)
	}
	s.st.out = nil
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, SGL: []work.SGE{s.at(0, 1400)}})
	if s.q.out.pace.Load().at == clock.Never {
		t.Fatal("no pause")
	}
	s.st.out = nil
	s.posts(work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled}, s.reads(4, 0, 8))
	if n := len(s.st.out); n != 2 {
		t.Errorf("%d messages without payload have left, want 2", n)
	}
}

// A new rate holds from the next step on, also for a request that waits in a long pause.
// A rate of 0 is no limit.
func TestSetRate(t *testing.T) {
	const length = 4 * 359 * 41
	s := open(t, withQueues(64), withCQ(128))
	s.heard()
	s.q.SetRate(1)
	s.posts(work.SendWR{ID: 1, Op: work.WRWrite, SGL: []work.SGE{s.at(0, length)}})
	if n := len(s.st.out); n != 1 {
		t.Fatalf("%d segments have left, want 1", n)
	}
	s.st.out = nil
	if d := s.q.Deadline(); d.Sub(s.now) < 20*time.Minute {
		t.Fatalf("the next segment leaves in %v", d.Sub(s.now))
	}
	s.q.SetRate(1e6)
	begin := s.now
	d := s.depart(func() time.Duration { return 0 })
	d.within(t, 1e6, 1440)
	if took := s.now.Sub(begin); took < 55*time.Millisecond || took > 60*time.Millisecond {
		t.Errorf("%d octets took %v", d.total, took)
	}
	s.q.SetRate(0)
	s.posts(work.SendWR{ID: 2, Op: work.WRWrite, SGL: []work.SGE{s.at(0, length)}})
	if n := len(s.st.out); n != 41 || s.q.Rate() != 0 {
		t.Errorf("%d segments have left at the rate %d, want 41 at 0", n, s.q.Rate())
	}
}

// A pause does not hold up a Terminate, nor an abort.
func TestRateAtTheEnd(t *testing.T) {
	s := open(t, func(u *setup) { u.Rate = 1000 })
	s.posts(work.SendWR{ID: 1, Op: work.WRWrite, SGL: []work.SGE{s.at(0, 9000)}})
	s.st.out = nil
	s.gets(send(1, nil)) // no receive
	if s.is(Terminate); len(s.st.out) != 1 || !s.st.shut {
		t.Fatalf("%d FPDUs, FIN %v; want a Terminate and a FIN", len(s.st.out), s.st.shut)
	}
}

// Steps of a QP with a rate allocate nothing.
func TestRateAllocatesNothing(t *testing.T) {
	s := open(t, func(u *setup) { u.Rate = 1e12 })
	run := s.departure(work.SendWR{Op: work.WRWrite, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 1000)}})
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
