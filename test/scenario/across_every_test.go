package scenario

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestMovedAcrossAtEveryOctet is TestMovedAtEveryOctet for a move to the other port of an
// adapter. The link of the old port goes on, or dies at the moment of the move with all that
// is under way. The other end follows at the same time, later or never.
func TestMovedAcrossAtEveryOctet(t *testing.T) {
	Play(t, *seedFlag, 4, movedAcrossAtEveryOctet)
}

func movedAcrossAtEveryOctet(seed uint64) error {
	c := drawCourse(seed)
	for side := range c.volume {
		for _, sent := range []bool{true, false} {
			last := c.volume[side]
			if !sent {
				last = c.volume[1-side]
			}
			w, err := c.cross()
			for at := uint64(0); at <= last && err == nil; at++ {
				if err = c.crossAt(w, stop{side, sent, at}); err != nil {
					err = fmt.Errorf("moved at %+v: %w", stop{side, sent, at}, err)
				}
			}
			if err != nil {
				return fmt.Errorf("%w\n%v", err, c)
			}
		}
	}
	return nil
}

// cross makes the adapters of a course. The second link is another one than the first.
func (c *course) cross() (*world.Cross, error) {
	links := [2]simnic.Config{c.weather.Link, c.weather.Link}
	links[0].Seed &^= 0xff
	links[1].Seed = links[0].Seed + 0x80
	links[1].Latency, links[1].Loss, links[1].Reorder = 3*links[0].Latency, links[0].Reorder/3, links[0].Loss
	return world.NewCross(world.CrossConfig{Links: links, Engine: engine.Config{TCP: c.weather.TCP}, Queues: c.ports, Records: c.seed%2 == 0})
}

// crossAt plays the course, with a move to the other link at the stop.
func (c *course) crossAt(w *world.Cross, s stop) error {
	x := &crossing{Rand: rand.New(rand.NewPCG(c.seed, s.at)), weather: c.weather, world: w}
	link := x.IntN(2)
	var ends [2]*halting
	var ulps [2]stream.ULP
	for side := range ends {
		x.ends[side] = octets.NewTransfer(octets.Plan{Send: c.volume[side], Seed: octets.Pattern(side),
			Expect: c.volume[1-side], PeerSeed: octets.Pattern(1 - side), Chunk: 1 + x.IntN(700)})
		ends[side] = &halting{Transfer: x.ends[side], sends: everything, reads: everything}
		ulps[side] = ends[side]
		x.at[side] = link*c.ports + x.IntN(c.ports)
	}
	halted := ends[s.side]
	if s.sent {
		halted.sends = s.at
	} else {
		halted.reads = s.at
	}
	var err error
	if x.conn, err = w.Connect(c.weather.Flow, x.at, ulps); err != nil {
		return err
	}
	if err := w.Run(time.Hour, halted.reached); err != nil {
		return fmt.Errorf("before the move: %w", err)
	}
	dies := x.IntN(2) == 0
	if dies {
		w.SetDown(link, true)
	}
	if err := x.cross(s.side, dies); err != nil {
		return err
	}
	halted.sends, halted.reads = everything, everything
	w.Engines[s.side][x.at[s.side]].Ring(x.conn.ID[s.side])
	if follows := x.IntN(3); dies || follows != 0 {
		w.Alarm = w.Now().Add(time.Duration(x.Int64N(int64(2 * time.Second))))
		if follows == 1 { // at once
			w.Alarm = w.Now()
		}
		if err := w.Run(time.Hour, func() bool { return !w.Now().Before(w.Alarm) || over(ends[0]) && over(ends[1]) }); err != nil {
			return fmt.Errorf("before the other end moves: %w", err)
		}
		if err := x.cross(1-s.side, dies); err != nil {
			return err
		}
	}
	w.SetDown(link, x.IntN(2) == 0 && dies)
	if err := x.play(); err != nil {
		return err
	}
	w.SetDown(link, false)
	return x.end()
}

// cross moves an end to the other link. An end that is over may have a TIME-WAIT record to
// move.
func (c *crossing) cross(side int, lost bool) error {
	queues := len(c.world.Engines[side]) / 2
	to := (1-c.world.Link(c.at[side]))*queues + c.IntN(queues)
	err := c.world.Move(side, c.conn.ID[side], c.at[side], to, elsewhere(lost, c.IntN(2) == 0))
	switch {
	case err == nil:
		c.at[side] = to
	case !over(c.ends[side]):
		return fmt.Errorf("end %d from lane %d to %d: %w", side, c.at[side], to, err)
	}
	return nil
}
