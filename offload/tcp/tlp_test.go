package tcp

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// probesTail sends two segments, a tail-loss probe that repeats the second one, and
// a third segment.
func (s *script) probesTail() {
	s.open(withSACK)
	s.write(2000)
	s.sends(0, "A 1:1001 ack 1", "PA 1001:2001 ack 1")
	s.sends(60*ms, "PA 1001:2001 ack 1")
	s.write(1000)
	s.sends(61*ms, "PA 2001:3001 ack 1")
}

func TestProbeTimeout(t *testing.T) { // RFC 8985 §7.2
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(2000)
		s.sends(0, "A 1:1001 ack 1", "PA 1001:2001 ack 1")
		s.deadline(60 * ms) // two round trips of 10 ms, and 40 at first
		s.gets(10*ms, "A 1:1 ack 1001")
		s.sends(10 * ms)
		// Less than two full segments: the peer may delay its ACK for 200 ms, and the retransmission timeout comes
		// earlier. The probe is sent in its place.
		s.deadline(210 * ms)
		s.sends(210*ms, "PA 1001:2001 ack 1")
		if st := s.c.Stats(); st.Timeouts != 0 || st.TailProbes != 1 {
			t.Errorf("%+v", st)
		}
		s.deadline(410 * ms) // the retransmission timeout follows it
		s.sends(410*ms, "PA 1001:2001 ack 1")
		if st := s.c.Stats(); st.Timeouts != 1 || st.TailProbes != 1 {
			t.Errorf("one probe per tail: %+v", st)
		}
	})
}

func TestProbeTimeoutWithoutSample(t *testing.T) { // §7.2: one second
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.SRTT, st.RTO = 0, 3*time.Second })
		s.write(2000)
		s.c.Transmit(s.now, s)
		s.deadline(time.Second)
	})
}

func TestNoProbeOfALivelyPeer(t *testing.T) { // a peer that delays its ACKs is not probed
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.SRTT, st.RTTVar = 50*us, 10*us })
		at := time.Duration(0)
		for i := range 50 {
			s.write(100)
			from := 1 + 100*i
			s.sends(at, "PA "+itoa(from)+":"+itoa(from+100)+" ack 1")
			s.sends(at + 39*ms)
			s.gets(at+40*ms, "A 1:1 ack "+itoa(from+100))
			at += 50 * ms
		}
	})
}

func TestProbeIsTheLastSegment(t *testing.T) { // §7.3, §7.4: RACK learns from its SACK what else is lost
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(5000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 2001")
		s.sends(10 * ms)
		s.deadline(70 * ms)
		s.sends(70*ms, "PA 4001:5001 ack 1") // one segment, the last
		s.gets(82*ms, "A 1:1 ack 2001 sack 4001-5001")
		s.sends(85*ms, "A 2001:3001 ack 1")
		s.gets(95*ms, "A 1:1 ack 3001 sack 4001-5001")
		s.sends(95*ms, "A 3001:4001 ack 1")
		s.gets(105*ms, "A 1:1 ack 5001")
		st := s.c.Stats()
		if st.Timeouts != 0 || st.Recoveries != 1 || st.Retransmits != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestProbeIsNewData(t *testing.T) { // §7.3: beyond the congestion window, if the peer's allows
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.Cwnd = 2000 })
		s.write(3000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1")
		s.sends(60*ms, "PA 2001:3001 ack 1")
		s.gets(70*ms, "A 1:1 ack 3001") // §7.4.2: nothing was lost
		if i, st := s.c.Info(), s.c.Stats(); i.Ssthresh != NoThreshold || st.Retransmits != 0 || st.TailProbes != 1 || s.c.loss.tail.out {
			t.Errorf("%+v %+v", i, st)
		}
	})
}

func TestProbeRespectsThePeersWindow(t *testing.T) { // §7.3
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.SndWnd, st.MaxWnd = 2000, 2000 })
		s.write(3000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1")
		s.gets(1*ms, "A 1:1 ack 1 win 1500") // shrunk
		s.sends(60 * ms)
		s.deadline(260 * ms)
		s.sends(260*ms, "A 1:1001 ack 1")
	})
}

func TestProbeFindsARepairedLoss(t *testing.T) { // §7.4.2
	for _, x := range []struct {
		name   string
		acks   []string
		repair bool
	}{
		{"the probe repaired a loss", []string{"A 1:1 ack 2001", "A 1:1 ack 3001"}, true},
		{"D-SACK: both arrived", []string{"A 1:1 ack 2001", "A 1:1 ack 2001 sack 1001-2001"}, false},
		{"D-SACK with the first ACK", []string{"A 1:1 ack 2001 sack 1001-2001"}, false},
		{"duplicate without SACK", []string{"A 1:1 ack 2001", "A 1:1 ack 2001"}, false},
		{"nothing said yet", []string{"A 1:1 ack 2001"}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.probesTail()
				for _, a := range x.acks {
					s.gets(70*ms, a)
				}
				i, st := s.c.Info(), s.c.Stats()
				if cut := i.Ssthresh != NoThreshold; cut != x.repair || (st.TailLosses == 1) != x.repair {
					t.Errorf("window reduced: %v; %+v", cut, st)
				}
				if out := len(x.acks) == 1 && st.DupSACKs == 0; s.c.loss.tail.out != out {
					t.Errorf("probe unresolved: %v", s.c.loss.tail.out)
				}
			})
		})
	}
}

func TestNoProbe(t *testing.T) { // §7.2: without SACK, in recovery, while something is SACKed, with nothing out
	each(t, func(s *script) {
		s.open()
		s.write(2000)
		s.c.Transmit(s.now, s)
		s.deadline(200 * ms)
	})
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(3000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
		s.sends(12500*us, "A 1:1001 ack 1")
		s.deadline(212500 * us) // nothing but the retransmission timeout
		s.gets(22500*us, "A 1:1 ack 3001")
		if at := s.c.Deadline(); at != clock.Never {
			t.Errorf("a timer runs on")
		}
	})
}

func TestNoProbeWhileASegmentIsLate(t *testing.T) { // §7.2: something is SACKed
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1001 sack 2001-3001")
		s.deadline(12500 * us) // the reordering timer continues
		s.sends(12500*us, "A 1001:2001 ack 1")
	})
}

func TestNoProbeInRecovery(t *testing.T) { // §7.2: a partial ACK is not the end of it
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
		s.sends(12500*us, "A 1:1001 ack 1")
		s.gets(22500*us, "A 1:1 ack 2001")
		s.sends(22500 * us)
		s.deadline(222500 * us)
	})
}

func TestProbeWaitsForRoom(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(2000)
		s.c.Transmit(s.now, s)
		s.room = 0
		s.sends(60 * ms)
		s.room = -1
		s.sends(61*ms, "PA 1001:2001 ack 1")
	})
}

func TestSlack(t *testing.T) {
	type trip struct{ at, trip time.Duration }
	const half = slackHalves
	for _, x := range []struct {
		name  string
		trips []trip // the usual round trip is 1 ms
		want  time.Duration
	}{
		{"at first", nil, 40 * ms},
		{"not at once", []trip{{1 * ms, ms}, {half - 1, ms}}, 40 * ms},
		{"half after a while", []trip{{half, ms}, {half + ms, ms}}, 20 * ms},
		{"half of that", []trip{{half, ms}, {2 * half, ms}}, 10 * ms},
		{"never less than a little", []trip{{half, ms}, {2 * half, ms}, {3 * half, ms}, {4 * half, ms}, {5 * half, ms}, {6 * half, ms}}, 2 * ms},
		{"as late again is in time", []trip{{half, 31 * ms}}, 59 * ms},
		{"as late as that keeps it", []trip{{1 * ms, 31 * ms}, {half, ms}, {half + ms, 31 * ms}}, 59 * ms},
		{"no less than was needed", []trip{{half, 20 * ms}, {2 * half, 15 * ms}}, 27 * ms},
		{"never more than an ACK's delay", []trip{{1 * ms, time.Second}}, 200 * ms},
	} {
		s := slack{firstSlack, scriptStart}
		for _, r := range x.trips {
			s.learn(scriptStart.Add(r.at), r.trip, ms)
		}
		if s.d != x.want {
			t.Errorf("%s: %v, want %v", x.name, s.d, x.want)
		}
	}
}

// A probe came too soon if everything was acknowledged before its duplicate was reported. If the duplicate is the
// first report, an ACK was lost, and the probe was useful.
func TestProbeForNothing(t *testing.T) {
	for _, x := range []struct {
		name string
		acks []string
		want time.Duration
	}{
		{"the ACK was late", []string{"A 1:1 ack 2001", "A 1:1 ack 2001 sack 1001-2001"}, 98 * ms},
		{"the ACK was lost", []string{"A 1:1 ack 2001 sack 1001-2001"}, 40 * ms},
		{"the probe repaired a loss", []string{"A 1:1 ack 2001", "A 1:1 ack 3001"}, 40 * ms},
	} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.probesTail()
				for _, a := range x.acks {
					s.gets(64*ms, a)
				}
				if s.c.loss.slack.d != x.want {
					t.Errorf("slack is %v, want %v", s.c.loss.slack.d, x.want)
				}
			})
		})
	}
}

// flights sends 2000 octets again and again for d, to a peer a millisecond away that answers with the delay of
// hiccup, and returns how many flights were sent.
func (s *script) flights(d time.Duration, hiccup func(at time.Duration) time.Duration) (n int) {
	s.Helper()
	for at := time.Duration(0); at < d; at += 2 * ms {
		first := s.c.stats.TailProbes
		s.at(at)
		s.write(2000)
		s.c.Transmit(s.now, s)
		heard := at + ms + hiccup(at)
		for due := s.c.Deadline(); due.Due(scriptStart.Add(heard)); due = s.c.Deadline() {
			s.now = due
			s.c.Transmit(s.now, s)
		}
		n++
		end := itoa(1 + 2000*n)
		s.gets(heard, "A 1:1 ack "+end)
		if s.c.stats.TailProbes != first {
			s.gets(heard+ms/2, "A 1:1 ack "+end+" sack "+itoa(2000*n-999)+"-"+end)
		}
		at = max(at, heard)
	}
	return n
}

// With a peer that answers in time, a lost tail is repaired soon.
func TestProbeComesSoon(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.SRTT, st.RTTVar = ms, 0 })
		s.flights(3*time.Second, func(time.Duration) time.Duration { return 0 })
		if st := s.c.Stats(); st.TailProbes != 0 || st.Retransmits != 0 {
			t.Errorf("%+v", st)
		}
		at := s.now.Sub(scriptStart) + ms
		s.at(at)
		s.write(2000)
		s.c.Transmit(s.now, s)
		s.deadline(at + 2*ms + leastSlack)
	})
}

// A peer that sometimes does not run for 4 to 30 ms causes unnecessary probes if that is rare, and none if it is
// frequent: less than one a second in every case.
func TestProbesForNothingAreFew(t *testing.T) {
	const long = time.Minute
	for _, every := range []time.Duration{20 * ms, 100 * ms, 300 * ms, time.Second, 5 * time.Second} {
		s := &script{T: t, iss: 1000, irs: 5000, now: scriptStart, room: -1}
		s.open(withSACK, func(st *State, _ *Config) { st.SRTT, st.RTTVar = ms, 0 })
		late, next, rng := 0, every, uint32(1)
		n := s.flights(long, func(at time.Duration) time.Duration {
			if at < next {
				return 0
			}
			rng = rng*1664525 + 1013904223
			late++
			next = at + every
			return 4*ms + time.Duration(rng>>16%27)*ms
		})
		st := s.c.Stats()
		t.Logf("late every %v: %d of %d flights, %d probes for nothing", every, late, n, st.TailProbes)
		if late < 10 || st.TailProbes > 40 || st.Timeouts != 0 || st.TailLosses != 0 {
			t.Errorf("%+v", st)
		}
	}
}
