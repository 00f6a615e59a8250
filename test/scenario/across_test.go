package scenario

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestMovedAcross moves both ends of a connection between the ports of their adapters, at
// random times of a transfer in both directions. Each of the two links between the adapters
// has its own faults. Links die for some time: both sides see it, or packets of one direction
// or of both vanish. Each end leaves a dead link at a time of its own, so that segments arrive
// where their connection is not. All octets arrive in order and once, both directions close
// in order, and every frame and slab comes home.
func TestMovedAcross(t *testing.T) {
	Play(t, *seedFlag, 200, movedAcross)
}

// crossing is one scenario of TestMovedAcross.
type crossing struct {
	*rand.Rand
	weather *Weather
	world   *world.Cross
	conn    world.Conn
	ends    [2]*octets.Transfer
	at      [2]int        // lane of each end
	dead    [2]bool       // links that do not work
	left    int           // events that are still to come
	goal    uint64        // octets with which the next event comes at the latest
	pause   time.Duration // longest time between two events
	unheard bool          // the last ACK of end 0 is lost
	log     []string
}

func movedAcross(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 6))
	first, second := Draw(r), Draw(r)
	second.Link.PathMTU = max(second.Link.PathMTU, 1280*b2u(first.Flow.V6))
	first.TCP.MaxRTO = maxRTO / 5 // many tries before the end of TIME-WAIT: links die
	c := &crossing{Rand: r, weather: first}
	d := drawer{r}
	links := [2]simnic.Config{first.Link, second.Link}
	for i := range links {
		links[i].Check = false
		links[i].Seed &^= 0xff // a seed for each cable
	}
	queues := 1 + r.IntN(2)
	w, err := world.NewCross(world.CrossConfig{Links: links, Engine: engine.Config{TCP: first.TCP}, Queues: queues, Records: r.IntN(2) == 0})
	if err != nil {
		return err
	}
	c.world = w
	volume := [2]uint64{uint64(d.between(1, 300e3)), uint64(d.sometimes(2, 1, 300e3))}
	var ulps [2]stream.ULP
	for side := range c.ends {
		c.ends[side] = octets.NewTransfer(octets.Plan{Send: volume[side], Seed: octets.Pattern(side),
			Expect: volume[1-side], PeerSeed: octets.Pattern(1 - side), Chunk: one(d, 0, 100, 700)})
		ulps[side] = c.ends[side]
		c.at[side] = r.IntN(2 * queues)
	}
	c.left, c.pause = 1+r.IntN(40), d.duration(links[0].Latency/4, time.Second)
	c.plan()
	if c.conn, err = w.Connect(first.Flow, c.at, ulps); err == nil {
		err = c.play()
	}
	if err == nil {
		err = c.end()
	}
	if err != nil {
		return fmt.Errorf("octets %v, at lanes %v: %w\n%v\nlink 0 %v\nlink 1 %+v", volume, c.at, err, c.log, first, second.Link)
	}
	return nil
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// come returns how many octets both ends have received.
func (c *crossing) come() uint64 { return c.ends[0].Received() + c.ends[1].Received() }

// plan says when the next event comes.
func (c *crossing) plan() {
	c.goal = c.come() + 1 + c.Uint64N(100_000)
	c.world.Alarm = c.world.Now().Add(time.Duration(1 + c.Int64N(int64(c.pause))))
}

// play runs the transfer with its events.
func (c *crossing) play() error {
	var failed error
	err := c.world.Run(2*time.Hour, func() bool {
		if c.left > 0 && failed == nil && (c.come() >= c.goal || !c.world.Now().Before(c.world.Alarm)) {
			failed = c.event()
			if c.left--; c.left == 0 {
				c.heal()
			}
			c.plan()
		}
		return failed != nil || over(c.ends[0]) && over(c.ends[1])
	})
	return errors.Join(failed, err, c.ends[0].Err(), c.ends[1].Err())
}

// heal makes both links work.
func (c *crossing) heal() {
	for link := range c.dead {
		c.dead[link] = false
		c.world.SetDown(link, false)
		c.world.SetMute(link, simnic.A, false)
		c.world.SetMute(link, simnic.B, false)
	}
}

// event lets a link die or both links heal, or moves an end.
func (c *crossing) event() error {
	switch c.IntN(8) {
	case 0:
		c.heal()
	case 1:
		link := c.IntN(2)
		c.heal() // one link works
		c.dead[link] = true
		switch c.IntN(4) {
		case 0:
			c.world.SetDown(link, true)
		case 1:
			c.world.SetMute(link, simnic.A, true)
			c.world.SetMute(link, simnic.B, true)
		default:
			c.world.SetMute(link, simnic.Side(c.IntN(2)), true)
		}
	default:
		return c.move(c.IntN(2))
	}
	return nil
}

// move moves an end to any lane of its side, perhaps to its present one.
func (c *crossing) move(side int) error {
	to := c.IntN(len(c.world.Engines[side]))
	from := c.world.Link(c.at[side])
	lost, fresh := c.dead[from] || c.IntN(8) == 0, c.world.Link(to) != from && c.IntN(4) != 0
	c.log = append(c.log, fmt.Sprintf("%v: end %d from lane %d to %d, lost %v, fresh %v", c.world.Now().Sub(1), side, c.at[side], to, lost, fresh))
	ended := over(c.ends[side])
	err := c.world.Move(side, c.conn.ID[side], c.at[side], to, elsewhere(lost, fresh))
	switch {
	case err == nil:
		c.at[side] = to
	case errors.Is(err, engine.ErrNoFlow) && (ended || over(c.ends[side])), errors.Is(err, tcp.ErrEnded):
		return nil // the flow ended before the move
	}
	return err
}

// elsewhere changes a connection as a move to another interface does.
func elsewhere(lost, fresh bool) engine.Change {
	return func(p *engine.Parted) {
		if p.Linger != nil {
			return
		}
		p.State.Lost, p.State.Fresh = lost, fresh
		moved := *p.State.Moved
		moved.AckNow = true
		p.State.Moved = &moved
	}
}

// end lets TIME-WAIT pass, with moves in it, and checks what is left.
func (c *crossing) end() error {
	for range c.IntN(6) {
		c.world.Pass(time.Duration(c.Int64N(int64(5 * time.Second))))
		if err := c.move(c.IntN(2)); err != nil {
			return err
		}
	}
	c.world.Pass(5 * time.Minute)
	for side := range c.ends {
		if err := c.world.EndedOnce(side, c.conn.ID[side]); err != nil {
			return err
		}
	}
	return c.world.Returned()
}
