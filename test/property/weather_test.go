package property

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/test/scenario"
)

// TestWeather plays sequences over networks that try to break TCP, each over
// one of its own: the same memory, the same completions, no frame lost, and
// nothing stands still longer than TCP's timers allow.
func TestWeather(t *testing.T) {
	scenario.Play(t, *seedFlag, 600, func(seed uint64) error {
		r, err := newRig(seed, scenario.Draw(rand.New(rand.NewPCG(seed, 4))))
		if err != nil {
			return err
		}
		g := &generator{Rand: r.Rand}
		for range 1 + r.IntN(3) {
			if err := r.sequence(g.plan()); err != nil {
				return fmt.Errorf("%w\n%v", err, r.watch)
			}
			if err := r.watch.Returned(); err != nil {
				return err
			}
		}
		return nil
	})
}
