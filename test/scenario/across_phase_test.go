package scenario

import (
	"context"
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

// TestMovedAcrossInEveryPhase moves an end between the ports of its adapter in each phase of
// its connection, some times, with what the phase waits for under way, lost or to come. The
// link of the old port goes on, or dies. The connection then goes through the phases that
// are left, and closes in order at both ends.
func TestMovedAcrossInEveryPhase(t *testing.T) {
	for _, p := range phases {
		t.Run(p.phase.String(), func(t *testing.T) {
			Play(t, *seedFlag, 40, func(seed uint64) error { return movedInPhase(p, seed) })
		})
	}
}

// inPhase is a phase of end 0, and how to get there.
type inPhase struct {
	phase  tcp.Phase
	first  int  // the end that closes first; 2: both; -1: none
	second bool // the other end has closed too, and its FIN has arrived
	mute   bool // the FIN of end 0 is lost, and what it sends after that
}

var phases = []inPhase{
	{tcp.Established, -1, false, false},
	{tcp.FinWait1, 0, false, true},
	{tcp.FinWait2, 0, false, false},
	{tcp.CloseWait, 1, false, false},
	{tcp.Closing, 2, true, true},
	{tcp.LastAck, 1, true, true},
	{tcp.InTimeWait, 0, true, false},
}

func movedInPhase(p inPhase, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 7))
	d := drawer{r}
	w := &Weather{TCP: tcp.Config{MaxRTO: maxRTO / 5, Seed: r.Uint64()}}
	w.flow(d)
	var links [2]simnic.Config
	for i := range links {
		latency := d.duration(100*time.Microsecond, 20*time.Millisecond)
		links[i] = simnic.Config{
			Seed: r.Uint64() &^ 0xff, Latency: latency, Frames: 128, FrameSize: 2048, Check: r.IntN(4) == 0,
			Loss: d.sometimes(2, 0.01, 0.1), Reorder: d.sometimes(2, 0.02, 0.3), ReorderBy: d.duration(latency/10, 2*latency),
			Duplicate: d.sometimes(3, 0.01, 0.1),
		}
	}
	cross, err := world.NewCross(world.CrossConfig{Links: links, Engine: engine.Config{TCP: w.TCP}, Queues: 1 + r.IntN(2), Records: r.IntN(2) == 0})
	if err != nil {
		return err
	}
	c := &crossing{Rand: r, weather: w, world: cross}
	if err := c.throughPhase(p); err != nil {
		return fmt.Errorf("%w\n%v\n%v\nlinks %+v", err, c.log, w, links)
	}
	return nil
}

// throughPhase brings a connection to a phase, moves it there, and closes it.
func (c *crossing) throughPhase(p inPhase) error {
	var ulps [2]stream.ULP
	queues := len(c.world.Engines[0]) / 2
	link := c.IntN(2)
	volume := [2]uint64{c.Uint64N(20_000), c.Uint64N(20_000)}
	for side := range c.ends {
		c.ends[side] = octets.NewTransfer(octets.Plan{Send: volume[side], Seed: octets.Pattern(side),
			Expect: volume[1-side], PeerSeed: octets.Pattern(1 - side), Hold: true})
		ulps[side] = c.ends[side]
		c.at[side] = link*queues + c.IntN(queues)
	}
	var err error
	if c.conn, err = c.world.Connect(c.weather.Flow, c.at, ulps); err != nil {
		return err
	}
	all := func() bool { return c.ends[0].Received() == volume[1] && c.ends[1].Received() == volume[0] }
	if p.first >= 0 || c.IntN(2) == 0 {
		if err := c.world.Run(time.Hour, all); err != nil {
			return fmt.Errorf("all octets: %w", err)
		}
		c.world.Pass(time.Second) // all octets are acknowledged, unless their ACKs were lost
	}
	if err := c.reach(p, link); err != nil {
		return err
	}
	if err := c.moveInPhase(p); err != nil {
		return err
	}
	c.world.SetMute(link, simnic.A, false)
	c.release(0)
	c.release(1)
	if err := c.play(); err != nil {
		return fmt.Errorf("after the move in %v: %w", p.phase, err)
	}
	return c.end()
}

func (c *crossing) release(side int) {
	c.ends[side].Release()
	c.world.Engines[side][c.at[side]].Ring(c.conn.ID[side])
}

// reach brings end 0 into the phase.
func (c *crossing) reach(p inPhase, link int) error {
	in := func(phase tcp.Phase) func() bool { return func() bool { return c.phase() == phase } }
	mute := func() {
		if p.mute {
			c.world.SetMute(link, simnic.A, true)
		}
	}
	var err error
	switch p.first {
	case 0:
		mute()
		c.release(0)
		if p.second {
			if err = c.world.Run(time.Hour, in(tcp.FinWait2)); err != nil {
				return fmt.Errorf("FIN-WAIT-2: %w", err)
			}
			if c.IntN(2) == 0 { // the last ACK is lost: the peer repeats its FIN
				c.unheard = true
				c.world.SetMute(link, simnic.A, true)
			}
			c.release(1)
		}
	case 1:
		c.release(1)
		if p.second {
			if err = c.world.Run(time.Hour, in(tcp.CloseWait)); err != nil {
				return fmt.Errorf("CLOSE-WAIT: %w", err)
			}
			mute()
			c.release(0)
		}
	case 2:
		mute()
		c.release(0)
		c.release(1)
	}
	if err := c.world.Run(time.Hour, in(p.phase)); err != nil {
		return fmt.Errorf("%v, and not %v: %w", c.phase(), p.phase, err)
	}
	return nil
}

// phase returns the phase of end 0.
func (c *crossing) phase() (phase tcp.Phase) {
	e := c.world.Engines[0][c.at[0]]
	err := c.world.Do(func(ctx context.Context) error {
		return e.Inspect(ctx, c.conn.ID[0], func(conn *tcp.Conn) { phase = conn.Info().Phase })
	})
	if errors.Is(err, engine.ErrNoFlow) {
		if ends := c.world.Ends(0, c.conn.ID[0]); len(ends) == 1 && !ends[0].Gone {
			return tcp.InTimeWait
		}
		return tcp.Closed
	}
	return phase
}

// moveInPhase moves end 0, to the other link first, and demands that it stays in its phase.
func (c *crossing) moveInPhase(p inPhase) error {
	old := c.world.Link(c.at[0])
	dies := c.IntN(2) == 0
	if dies {
		c.world.SetDown(old, true)
	}
	before := c.phase()
	for range 1 + 2*c.IntN(3) {
		if err := c.cross(0, dies); err != nil {
			return err
		}
		if now := c.phase(); before == p.phase && now != p.phase {
			return fmt.Errorf("moved in %v, and now in %v", before, now)
		}
	}
	if dies || c.IntN(2) == 0 {
		c.world.Alarm = c.world.Now().Add(time.Duration(c.Int64N(int64(2 * time.Second))))
		_ = c.world.Run(time.Hour, func() bool { return !c.world.Now().Before(c.world.Alarm) })
		if err := c.cross(1, dies); err != nil {
			return err
		}
	}
	if !c.unheard {
		return nil
	}
	// The record answers the FIN from the new port, and the peer's end needs nothing else.
	if over(c.ends[1]) {
		return nil // it has repeated its FIN before its move
	}
	sent := c.world.Sent(c.world.Link(c.at[0]), simnic.A)
	if err := c.world.Run(time.Minute, func() bool { return over(c.ends[1]) }); err != nil {
		return fmt.Errorf("the repeated FIN is not answered: %w", err)
	}
	if c.world.Sent(c.world.Link(c.at[0]), simnic.A) == sent {
		return errors.New("the last ACK did not come from the new port")
	}
	return nil
}
