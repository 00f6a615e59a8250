package engine_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/contract"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestContract: the contract of every stream with its upper layer holds, on a perfect
// link, on one that loses, reorders and duplicates, and over a driver in zero-copy mode.
func TestContract(t *testing.T) {
	links := map[string]simnic.Config{
		"perfect link": {Latency: 50 * time.Microsecond},
		"bad link":     {Latency: time.Millisecond, Loss: 0.02, Reorder: 0.02, Duplicate: 0.02, Seed: 5},
		"zero copy":    {Latency: 50 * time.Microsecond, Driver: zeroCopy, Sums: true},
	}
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			link.Check = true
			contract.Run(t, func(t testing.TB) contract.Pair {
				w, err := world.New(world.Config{Link: link})
				if err != nil {
					t.Fatal(err)
				}
				return &virtual{t: t, w: w}
			})
		})
	}
}

// virtual is a contract.Pair in virtual time.
type virtual struct {
	t testing.TB
	w *world.World
	c world.Conn
}

func (v *virtual) Start(a, b stream.ULP) {
	var err error
	if v.c, err = v.w.Connect(world.Flow{}, a, b); err != nil {
		v.t.Fatal(err)
	}
}

func (v *virtual) Doorbell(e contract.End) { v.w.Engines[e].Ring(v.c.ID[e]) }

// Until fails after ten minutes in which cond has not become true.
func (v *virtual) Until(cond func() bool) bool {
	for limit := v.w.Now().Add(10 * time.Minute); v.w.Now().Before(limit); {
		if cond() {
			return true
		}
		if !v.w.Step(limit) {
			v.w.Pass(time.Millisecond) // nothing happens by itself: cond may need time to pass
		}
	}
	return cond()
}
