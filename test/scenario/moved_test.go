package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestMoved moves a connection between the engines of an adapter, again and again, at
// random places of a transfer in both directions over bad cables. All octets arrive in
// order and once. Both directions close in order. Every frame and slab returns to its
// pool. At times the test also takes the peer's end out of its engine and puts it back.
func TestMoved(t *testing.T) {
	Play(t, *seedFlag, 200, movedThrough)
}

// journey is one scenario of TestMoved.
type journey struct {
	*rand.Rand
	world *world.Lanes
	conn  world.Conn
	ends  [2]*octets.Transfer
	total uint64
	at    int // number of the lane that owns the adapter's end
	goal  []uint64
	moves int
}

func movedThrough(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 4))
	weather, d := Draw(r), drawer{r}
	weather.Link.Check = false
	w, err := world.NewLanes(world.LanesConfig{
		Link: weather.Link, Engine: engine.Config{TCP: weather.TCP}, Seed: seed, Records: r.IntN(2) == 0,
		Ports: 1 + r.IntN(2), Queues: 2,
	})
	if err != nil {
		return err
	}
	j := &journey{Rand: r, world: w, at: r.IntN(len(w.Engines))}
	volume := [2]uint64{uint64(d.between(1, 300e3)), uint64(d.sometimes(2, 1, 300e3))}
	for side := range j.ends {
		j.ends[side] = octets.NewTransfer(octets.Plan{Send: volume[side], Seed: octets.Pattern(side),
			Expect: volume[1-side], PeerSeed: octets.Pattern(1 - side), Chunk: one(d, 0, 100, 700)})
	}
	j.total = volume[0] + volume[1]
	for range 1 + r.IntN(30) {
		j.goal = append(j.goal, r.Uint64N(j.total+1))
	}
	if j.conn, err = w.Connect(weather.Flow, j.at, j.ends[0], j.ends[1]); err == nil {
		err = j.play()
	}
	if err != nil {
		return fmt.Errorf("octets %d and %d, %d moves: %w\n%v", volume[0], volume[1], j.moves, err, weather)
	}
	return j.returned()
}

// play runs the transfer. It moves an end whenever the octets that both ends have
// received reach one of the goals.
func (j *journey) play() error {
	var failed error
	err := j.world.Run(2*time.Hour, func() bool {
		if failed == nil {
			failed = j.moveIfDue()
		}
		return failed != nil || over(j.ends[0]) && over(j.ends[1])
	})
	for _, e := range []error{failed, err, j.ends[0].Err(), j.ends[1].Err()} {
		if e != nil {
			return e
		}
	}
	return nil
}

func (j *journey) moveIfDue() error {
	come := j.ends[0].Received() + j.ends[1].Received()
	for i, goal := range j.goal {
		if goal > come {
			continue
		}
		j.goal = append(j.goal[:i], j.goal[i+1:]...)
		side := 0
		if j.IntN(4) == 0 {
			side = 1
		}
		if over(j.ends[side]) {
			return nil
		}
		return j.move(side)
	}
	return nil
}

// move moves one end to any engine of its side, perhaps to its present engine.
func (j *journey) move(side int) error {
	from, to, next := j.world.Peer, j.world.Peer, j.at
	if side == 0 {
		next = j.IntN(len(j.world.Engines))
		from, to = j.world.Engines[j.at], j.world.Engines[next]
	}
	j.moves++
	err := j.world.Do(func(ctx context.Context) error {
		_, _, err := engine.Move(ctx, j.conn.ID[side], from, to, nil)
		return err
	})
	if over(j.ends[side]) {
		return nil // the flow ended before the move
	}
	if err == nil {
		j.at = next
	}
	return err
}

// returned returns an error if frames or slabs are still in use.
func (j *journey) returned() error {
	limit := j.world.Now().Add(5 * time.Minute)                                         // after the end of TIME-WAIT
	_ = j.world.Run(10*time.Minute, func() bool { return limit.Before(j.world.Now()) }) // or until no event is left
	for i, l := range j.world.Links {
		for side, s := range []simnic.Side{simnic.A, simnic.B} {
			if rx, tx := l.Lent(s); rx != 0 || tx > 64 {
				return fmt.Errorf("cable %d, side %d: %d receive and %d transmit frames have not come home", i, side, rx, tx)
			}
		}
	}
	if n := j.world.Dir.SlabsLent(); n != 0 {
		return fmt.Errorf("%d slabs are lent", n)
	}
	return nil
}
