package scenario

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/world"
)

var seedFlag = flag.Uint64("seed", 0, "play only the scenario of this seed")

// TestOctets plays scenarios of plain octets. All octets arrive in order and once, in
// both directions, whichever end closes first. The connection makes progress as soon as
// the timers allow (Watch).
func TestOctets(t *testing.T) {
	Play(t, *seedFlag, 1000, octetsThrough)
}

// order says which end closes first.
type order int

const (
	whenSent     order = iota // each end when it has sent everything
	firstCloses               // the first end; the second end after that
	secondCloses              // the second end; the first end after that
	bothAtOnce                // both ends when both have received everything
	orders
)

// scenario is a scenario of plain octets.
type scenario struct {
	*rand.Rand
	watch  *Watch
	how    order
	echo   bool      // the second end sends back the octets that it receives
	volume [2]uint64 // octets
	ends   [2]speaker
	conn   world.Conn
}

// speaker is the upper layer of an end.
type speaker interface {
	stream.ULP
	Done() <-chan struct{}
	Err() error
}

// octetsThrough plays one scenario.
func octetsThrough(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	weather := Draw(r)
	w, err := world.New(world.Config{Link: weather.Link, Engine: engine.Config{TCP: weather.TCP}, Flows: 4})
	if err != nil {
		return err
	}
	d := drawer{r}
	s := &scenario{
		Rand: r, how: order(r.IntN(int(orders))), echo: r.IntN(4) == 0,
		volume: [2]uint64{uint64(d.between(1, 400e3)), uint64(d.sometimes(2, 1, 400e3))},
		watch:  &Watch{World: w, Weather: weather, Pause: time.Duration(d.sometimes(2, 1e6, 1e9))},
	}
	s.people(d)
	if s.conn, err = w.Connect(weather.Flow, s.watch.Ends[0], s.watch.Ends[1]); err == nil {
		s.watch.Begin()
		err = s.play()
	}
	if err = errors.Join(err, s.ends[0].Err(), s.ends[1].Err()); err != nil {
		return fmt.Errorf("octets %d and %d, echo %v, order %d, pauses %v: %w\n%v", s.volume[0], s.volume[1], s.echo, s.how, s.watch.Pause, err, s.watch)
	}
	return s.watch.Returned()
}

// people makes the two upper layers.
func (s *scenario) people(d drawer) {
	if s.echo {
		s.how, s.volume[1] = whenSent, s.volume[0]
	}
	lazy := one(d, 0.01, 0.1, 0.5)
	if s.watch.Pause == 0 {
		lazy = 0
	}
	for side := range s.ends {
		hold := s.how == bothAtOnce || s.how == firstCloses && side == 1 || s.how == secondCloses && side == 0
		p := octets.Plan{
			Send: s.volume[side], Seed: octets.Pattern(side), Expect: s.volume[1-side], PeerSeed: octets.Pattern(1 - side),
			Chunk: one(d, 0, 100, 700), Hold: hold,
		}
		if s.echo {
			p.PeerSeed = p.Seed
		}
		s.ends[side] = &talker{rng: s.Rand, lazy: lazy, longest: s.watch.Pause, Transfer: octets.NewTransfer(p)}
		if s.echo && side == 1 {
			s.ends[side] = octets.NewEcho()
		}
		s.watch.Ends[side] = &Seen{ULP: s.ends[side]}
	}
}

// play waits until all octets have arrived and both ends have closed in the drawn
// order.
func (s *scenario) play() error {
	closes := func(sides ...int) {
		for _, side := range sides {
			s.ends[side].(*talker).Release()
			s.watch.World.Engines[side].Ring(s.conn.ID[side])
		}
	}
	everything := func() bool {
		return s.ends[0].(*talker).Received() == s.volume[1] && s.ends[1].(*talker).Received() == s.volume[0]
	}
	seesTheEnd := func(side int) func() bool { return func() bool { return s.ends[side].(*talker).eof } }
	switch s.how {
	case firstCloses:
		if err := s.watch.Run(seesTheEnd(1)); err != nil {
			return err
		}
		closes(1)
	case secondCloses:
		if err := s.watch.Run(seesTheEnd(0)); err != nil {
			return err
		}
		closes(0)
	case bothAtOnce:
		if err := s.watch.Run(everything); err != nil {
			return err
		}
		closes(0, 1)
	}
	return s.watch.Run(func() bool { return over(s.ends[0]) && over(s.ends[1]) })
}

func over(s speaker) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
