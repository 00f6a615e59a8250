package goodput

import (
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestPingsThroughLoss sends messages of 64 KiB back and forth eight times while
// segments are lost in both directions. Most of the time is timeouts. The estimate of
// the round-trip time must not include them. All times are virtual. The bounds are 10%
// and 50% above the values at the time when the test was written.
func TestPingsThroughLoss(t *testing.T) {
	for _, c := range []struct {
		loss         float64
		noStamps     bool
		median, most time.Duration
	}{
		{0.05, false, 600 * time.Millisecond, 3 * time.Second},
		{0.05, true, 550 * time.Millisecond, 3 * time.Second},
		{0.15, false, 12 * time.Second, 70 * time.Second},
		{0.15, true, 12500 * time.Millisecond, 100 * time.Second},
	} {
		var took []time.Duration
		for seed := range uint64(200) {
			took = append(took, pings(t, seed, c.loss, c.noStamps))
		}
		slices.Sort(took)
		n := len(took)
		t.Logf("loss %v%%, timestamps %v: median %v, nine of ten within %v, all within %v", 100*c.loss, !c.noStamps, took[n/2], took[9*n/10], took[n-1])
		if took[n/2] > c.median || took[n-1] > c.most {
			t.Errorf("loss %v%%, timestamps %v: want a median of %v at most, and none above %v", 100*c.loss, !c.noStamps, c.median, c.most)
		}
	}
}

// pings returns how long eight round trips take.
func pings(t *testing.T, seed uint64, loss float64, noStamps bool) time.Duration {
	t.Helper()
	const size, count = 64 << 10, 8
	link := simnic.Config{Seed: seed, Loss: loss, Latency: 200 * time.Microsecond, Rate: 1e9, Frames: 1024}
	w, err := world.New(world.Config{Link: link})
	if err != nil {
		t.Fatal(err)
	}
	a, b := &pinger{size: size, owes: size}, &pinger{size: size}
	flow := world.Flow{NoTimestamps: noStamps, Edit: func(_ int, st *tcp.State) {
		st.Congestion, st.SRTT, st.RTTVar = "cubic", 400*time.Microsecond, 200*time.Microsecond
	}}
	if _, err := w.Connect(flow, a, b); err != nil {
		t.Fatal(err)
	}
	begin := w.Now()
	if err := w.Run(time.Hour, func() bool { return a.rounds == count }); err != nil {
		t.Fatalf("seed %d, loss %v: %v after %d and %d messages", seed, loss, err, a.rounds, b.rounds)
	}
	return w.Now().Sub(begin)
}

// pinger is either end. It answers a complete message of size octets with a message of
// the same size.
type pinger struct {
	size, rounds int
	got, owes    int
	views        [8][]byte
}

// Receive implements stream.ULP.
func (p *pinger) Receive(_ clock.Instant, s stream.Stream) {
	for n := s.Views(p.views[:]); n > 0; n = s.Views(p.views[:]) {
		octets := 0
		for _, v := range p.views[:n] {
			octets += len(v)
		}
		s.Consume(octets)
		p.got += octets
	}
	for p.got >= p.size {
		p.got -= p.size
		p.rounds++
		p.owes += p.size
	}
}

// Transmit implements stream.ULP.
func (p *pinger) Transmit(_ clock.Instant, s stream.Stream) {
	for p.owes > 0 {
		n := min(p.owes, s.MaxEmit())
		if s.Emit(n) == nil {
			return
		}
		p.owes -= n
	}
}

// Fault implements stream.ULP.
func (p *pinger) Fault(clock.Instant, error) {}

// Deadline implements stream.ULP.
func (p *pinger) Deadline() clock.Instant { return clock.Never }
