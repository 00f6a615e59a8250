package e2e

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// TestProgressModes transfers octets in both directions with every progress mode: the engine's goroutine alone,
// sleeping or spinning, and several users that call Progress at the same time while the goroutine waits.
func TestProgressModes(t *testing.T) {
	for _, m := range []struct {
		name   string
		spin   time.Duration
		inline int // goroutines that call Progress
	}{
		{"engine that sleeps", 0, 0},
		{"engine that spins", 100 * time.Microsecond, 0},
		{"inline", 0, 1},
		{"inline from three goroutines", 0, 3},
	} {
		t.Run(m.name, func(t *testing.T) {
			r := newRig(t, setup{nic: nic.Config{Engine: engine.Config{Spin: m.spin}}})
			const volume = 8 << 20
			our, peer := r.connect(way{})
			k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}).start()
			ulp := octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs})
			f := r.take(our, ulp)

			done := make(chan struct{})
			var users sync.WaitGroup
			for range m.inline {
				users.Go(func() { progress(f.Engine(), done) })
			}
			r.Wait(ulp.Done(), "the transfer")
			close(done)
			users.Wait()
			r.Check(ulp.Err())
			r.Check(<-k.read)
			r.Check(<-k.wrote)
		})
	}
}

// progress calls Progress, as a user of the inline mode does while it waits.
func progress(e *engine.Engine, done chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
			e.Progress(clock.Now())
			runtime.Gosched()
		}
	}
}

// TestInlineDeadline lets a user's Progress set a deadline before the end of the keeper's sleep. The keeper must still
// meet the deadline.
func TestInlineDeadline(t *testing.T) {
	r := newRig(t, setup{})
	our, peer := r.connect(way{})
	ulp := &alarm{rang: make(chan struct{})}
	f := r.take(our, ulp)
	time.Sleep(20 * time.Millisecond) // the keeper sleeps, for as long as keepalive lets it
	ulp.set(clock.Now().Add(50 * time.Millisecond))
	f.Ring()
	f.Engine().Progress(clock.Now()) // the goroutine that has the token serves the doorbell
	r.Wait(ulp.rang, "the upper layer's deadline")
	r.Check(peer.Close())
}
