package property

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/test/scenario"
	"github.com/stag-rdma/stag/test/simnic"
)

// TestSequencesMoved plays sequences over networks that try to break TCP. Between two
// events, now and then, one side continues in a fresh QP with fresh CQs, which get nothing
// but the encoded state of the old ones. Its TCP connection leaves its engine and comes
// back. Memory and completions are as in the model.
func TestSequencesMoved(t *testing.T) {
	var moves atomic.Int64
	defer func() {
		if t.Logf("%d moves", moves.Load()); moves.Load() < 10 && *seedFlag == 0 {
			t.Error("almost nothing has moved")
		}
	}()
	scenario.Play(t, *seedFlag, 600, func(seed uint64) error {
		r, err := newRig(seed, scenario.Draw(rand.New(rand.NewPCG(seed, 4))))
		if err != nil {
			return err
		}
		g, often := &generator{Rand: r.Rand}, 1+r.IntN(60)
		r.between = func() {
			if r.IntN(often) == 0 && r.failed == nil {
				r.failed = r.move(r.IntN(2))
			}
		}
		defer func() { moves.Add(int64(r.moves)) }()
		for range 1 + r.IntN(3) {
			if err := r.sequence(g.plan()); err != nil {
				return fmt.Errorf("after %d moves: %w\n%v", r.moves, err, r.watch)
			}
			if err := r.watch.Returned(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestMovedAtEveryOctet plays one sequence again and again. Each time, one side moves when
// it has received or sent one octet or one FPDU more than the time before.
func TestMovedAtEveryOctet(t *testing.T) {
	scenario.Play(t, *seedFlag, 12, func(seed uint64) error {
		for side := range 2 {
			for _, sends := range []bool{false, true} {
				if err := movedAtEvery(seed, side, sends); err != nil {
					return fmt.Errorf("side %d, sends %v: %w", side, sends, err)
				}
			}
		}
		return nil
	})
}

// movedAtEvery is TestMovedAtEveryOctet for one side and one direction.
func movedAtEvery(seed uint64, side int, sends bool) error {
	weather := &scenario.Weather{Link: simnic.Config{Seed: seed, Latency: 50 * time.Microsecond, Loss: 0.03, Duplicate: 0.02, Reorder: 0.1}}
	r, err := newRig(seed, weather)
	if err != nil {
		return err
	}
	p := (&generator{Rand: rand.New(rand.NewPCG(seed, 6))}).short()
	for at, end := 0, false; !end; at++ {
		r.Rand = rand.New(rand.NewPCG(seed, 7)) // the same agreement each time
		g := &gate{limit: at, sends: sends}
		r.gates = [2]*gate{}
		r.gates[side] = g
		before := r.moves
		r.between = func() {
			if g.reached && r.failed == nil {
				g.limit, g.reached = everything, false
				r.failed = r.move(side)
				r.ring(side)
			}
		}
		if err := r.sequence(p); err != nil {
			return fmt.Errorf("moved at %d: %w", at, err)
		}
		r.w.Pass(5 * time.Minute) // the end of TIME-WAIT
		end = r.moves == before   // the limit was not reached
		if at > 20000 {
			return fmt.Errorf("the sequence does not end")
		}
	}
	if least := map[bool]int{false: 100, true: 3}[sends]; r.moves < least {
		return fmt.Errorf("only %d moves", r.moves)
	}
	return nil
}

// short returns a plan with few octets and several requests of each side.
func (g *generator) short() *plan {
	for {
		p := g.plan()
		n, least := 0, queueDepth
		for side := range p.halves {
			least = min(least, len(p.halves[side].requests))
			for i := range p.halves[side].requests {
				r := &p.halves[side].requests[i]
				n += max(r.length(), r.remote.n)
			}
		}
		if n < 1000 && least >= 4 {
			return p
		}
	}
}

// move lets one side continue in a fresh QP with fresh CQs. Its connection leaves the
// engine and comes back. move does nothing if the connection has ended.
func (r *rig) move(side int) error {
	e, engineOf := &r.ends[side], r.w.Engines[side]
	if e.q.Dead() || e.q.State() == rdmap.Errored {
		return nil
	}
	r.poll()
	var failed error
	err := r.w.Do(side, func(ctx context.Context) error {
		_, _, err := engine.Move(ctx, r.conn.ID[side], engineOf, engineOf, func(p *engine.Parted) {
			if p.Linger == nil {
				failed = r.replace(side)
			}
		})
		return err
	})
	if e.q.Dead() {
		return nil // the flow ended before the move
	}
	r.moves++
	if failed != nil {
		return failed
	}
	return err
}

// replace exports the QP and the CQs of a side, and imports them.
func (r *rig) replace(side int) error {
	e, now := &r.ends[side], r.w.Now()
	octets, err := e.q.Image(now).Encode(nil)
	if err != nil {
		return err
	}
	image, err := rdmap.ParseImage(octets, now)
	if err != nil {
		return err
	}
	if again, err := image.Encode(nil); err != nil || !bytes.Equal(octets, again) {
		return fmt.Errorf("the octets of the image changed on their way: %v", err)
	}
	send, recv := e.q.Places()
	name := func(p *work.Places) uint32 { return map[*work.Places]uint32{send: 1, recv: 2}[p] }
	states := []work.CQState{e.scq.Export(name), e.rcq.Export(name)}
	e.scq, e.rcq = work.NewCQ(64, &r.boards[side]), work.NewCQ(64, &r.boards[side])
	if e.q, err = rdmap.Import(r.config(side), image); err != nil {
		return err
	}
	send, recv = e.q.Places()
	for i, cq := range []*work.CQ{e.scq, e.rcq} {
		cq.News.Fire = func() {}
		if err := cq.Import(&states[i], func(name uint32) *work.Places { return []*work.Places{nil, send, recv}[name] }); err != nil {
			return err
		}
	}
	e.q.News.Fire = func() {}
	r.watch.Ends[side].ULP = r.ulp(side)
	return nil
}

// ulp returns the upper layer of a side: its QP, behind its gate if it has one.
func (r *rig) ulp(side int) stream.ULP {
	if g := r.gates[side]; g != nil {
		g.ULP = r.ends[side].q
		return g
	}
	return r.ends[side].q
}

// everything is a limit that is never reached.
const everything = 1 << 30

// gate is a QP that reads no more than limit octets, or sends no more than limit FPDUs.
type gate struct {
	stream.ULP
	sends   bool
	limit   int
	reached bool // there is something that the QP may not read or send
	n       int
}

// Receive implements stream.ULP.
func (g *gate) Receive(now clock.Instant, s stream.Stream) { g.ULP.Receive(now, &gated{s, g}) }

// Transmit implements stream.ULP. It reads what Receive has left.
func (g *gate) Transmit(now clock.Instant, s stream.Stream) {
	if !g.sends {
		g.Receive(now, s)
	}
	g.ULP.Transmit(now, &gated{s, g})
}

// gated is a stream that shows and takes only so much.
type gated struct {
	stream.Stream
	g *gate
}

// Views implements stream.Stream.
func (s *gated) Views(dst [][]byte) int {
	n := s.Stream.Views(dst)
	if s.g.sends {
		return n
	}
	left := s.g.limit - s.g.n
	for i, v := range dst[:n] {
		if len(v) > left {
			s.g.reached = true
			if dst[i] = v[:left]; left == 0 {
				return i
			}
			return i + 1
		}
		left -= len(v)
	}
	return n
}

// Consume implements stream.Stream.
func (s *gated) Consume(n int) {
	if !s.g.sends {
		s.g.n += n
	}
	s.Stream.Consume(n)
}

// Emit implements stream.Stream.
func (s *gated) Emit(n int) []byte {
	if s.g.sends && s.g.n >= s.g.limit {
		s.g.reached = true
		return nil
	}
	b := s.Stream.Emit(n)
	if b != nil && s.g.sends {
		s.g.n++
	}
	return b
}
