package property

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/test/scenario"
	"github.com/stag-rdma/stag/test/simnic"
)

// TestWeather plays sequences over networks that try to break TCP, each over a network
// of its own. Memory and completions are as in the model, no frame is lost, and the
// connection makes progress as soon as TCP's timers allow.
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

// TestForged plays sequences over networks that change data so that TCP's checksum
// stays correct. MPA's CRC detects the change. Changed octets are never placed, and all
// completions are right.
func TestForged(t *testing.T) {
	scenario.Play(t, *seedFlag, 300, func(seed uint64) error {
		weather := scenario.Draw(rand.New(rand.NewPCG(seed, 5)))
		weather.Link.Forge = 0.02
		r, err := newRig(seed, weather)
		if err != nil {
			return err
		}
		g := &generator{Rand: r.Rand}
		p := g.plan()
		for p.faulty >= 0 {
			p = g.plan()
		}
		how, err := r.open(p)
		if err != nil {
			return err
		}
		before := [2]memory{r.ends[0].mem.clone(), r.ends[1].mem.clone()}
		if err = r.play(p); err == nil {
			err = r.judgeForged(p, before)
		}
		if err != nil {
			return fmt.Errorf("%w\n%v%s\n%v", err, p, how, r.watch)
		}
		return r.watch.Returned()
	})
}

// judgeForged checks that the sequence was executed, or that the CRC ended it.
func (r *rig) judgeForged(p *plan, before [2]memory) error {
	forged := r.w.Link.Stats(simnic.A).Forged + r.w.Link.Stats(simnic.B).Forged
	if r.ends[0].q.State() == rdmap.Idle && r.ends[1].q.State() == rdmap.Idle {
		return r.judge(p, before)
	}
	if forged == 0 {
		return fmt.Errorf("nothing was forged, and yet it has not ended in good order")
	}
	const mpa = 2 // the layer number (RFC 5040 §4.8)
	for side := range r.ends {
		c := r.ends[side].q.Cause()
		if c.Err == nil && c.Code != (rdmap.Code{}) && c.Code.Layer != mpa {
			return fmt.Errorf("side %d has ended by %v: what was forged has passed the CRC", side, c.Code)
		}
		d := model(p, side, before[side], before[1-side])
		if err := r.judgeCut(p, side, &d); err != nil {
			return fmt.Errorf("requests of side %d: %w", side, err)
		}
	}
	return nil
}
