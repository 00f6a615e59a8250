package scenario

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/world"
)

var seedFlag = flag.Uint64("seed", 0, "play only the scenario of this seed")

// TestOctets plays scenarios of plain octets: all arrive, in order, once, in
// both directions, whoever closes first, and nothing stands still longer than
// the timers allow (Watch).
func TestOctets(t *testing.T) {
	Play(t, *seedFlag, 1000, octetsThrough)
}

// order is who closes first.
type order int

const (
	whenSent     order = iota // each end as soon as it has sent everything
	firstCloses               // the second one when it has seen that
	secondCloses              // the other way round
	bothAtOnce                // when both have received everything
	orders
)

// octetsThrough is one scenario.
func octetsThrough(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	weather := Draw(r)
	w, err := world.New(world.Config{Link: weather.Link, Engine: offload.Config{TCP: weather.TCP}, Flows: 4})
	if err != nil {
		return err
	}
	d := drawer{r}
	how := order(r.IntN(int(orders)))
	volume := [2]uint64{uint64(d.between(1, 400e3)), uint64(d.sometimes(2, 1, 400e3))}
	pause := time.Duration(d.sometimes(2, 1e6, 1e9))
	lazy := one(d, 0.01, 0.1, 0.5)
	watch := &Watch{World: w, Weather: weather, Pause: pause}
	var ends [2]*talker
	for side := range ends {
		hold := how == bothAtOnce || how == firstCloses && side == 1 || how == secondCloses && side == 0
		ends[side] = &talker{rng: r, longest: pause, Transfer: octets.NewTransfer(octets.Plan{
			Send: volume[side], Seed: octets.Pattern(side), Expect: volume[1-side], PeerSeed: octets.Pattern(1 - side),
			Chunk: one(d, 0, 100, 700), Hold: hold,
		})}
		if pause > 0 {
			ends[side].lazy = lazy
		}
		watch.Ends[side] = &Seen{ULP: ends[side]}
	}
	c, err := w.Connect(weather.Flow, watch.Ends[0], watch.Ends[1])
	if err != nil {
		return err
	}
	watch.Begin()
	release := func(side int) {
		ends[side].Release()
		w.Engines[side].Ring(c.ID[side])
	}
	if how == bothAtOnce {
		err := watch.Run(func() bool { return ends[0].Received() == volume[1] && ends[1].Received() == volume[0] })
		if err != nil {
			return err
		}
		release(0)
		release(1)
	}
	released := false
	err = watch.Run(func() bool {
		if side := int(how - firstCloses); !released && (how == firstCloses || how == secondCloses) && ends[1-side].eof {
			released = true
			release(1 - side)
		}
		return over(ends[0]) && over(ends[1])
	})
	if err = errors.Join(err, ends[0].Err(), ends[1].Err()); err != nil {
		return fmt.Errorf("octets %d and %d, order %d, pauses %v: %w\n%v", volume[0], volume[1], how, pause, err, watch)
	}
	return watch.Returned()
}

func over(t *talker) bool {
	select {
	case <-t.Done():
		return true
	default:
		return false
	}
}
