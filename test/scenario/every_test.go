package scenario

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestMovedAtEveryOctet plays a transfer both ways once for each octet offset of it: an
// end has sent, or has read, exactly so many octets when its connection is exported from
// an engine and installed in one. The cables lose and reorder segments, and the end with
// less to send closes its direction while the other still sends. All octets arrive, in
// order, once, both directions close in order, and every frame and slab comes home.
func TestMovedAtEveryOctet(t *testing.T) {
	Play(t, *seedFlag, 8, movedAtEveryOctet)
}

// course is the transfer of a seed.
type course struct {
	seed    uint64
	weather *Weather
	volume  [2]uint64 // octets that each side sends
	ports   int       // of the adapter, which is side 0
}

func (c *course) String() string {
	return fmt.Sprintf("octets %v, %d ports\n%v", c.volume, c.ports, c.weather)
}

// stop is a place in a course.
type stop struct {
	side int
	sent bool   // counts octets that the side has sent, else octets that it has read
	at   uint64 // octets
}

// drawCourse makes the course of a seed. A volume of a few segments passes through all
// states of a connection, and has few enough offsets to try all.
func drawCourse(seed uint64) *course {
	r := rand.New(rand.NewPCG(seed, 5))
	d := drawer{r}
	c := &course{seed: seed, weather: &Weather{}, ports: 1 + r.IntN(2)}
	for side := range c.volume {
		c.volume[side] = 1 + r.Uint64N(2000)
	}
	latency := d.duration(100*time.Microsecond, 20*time.Millisecond)
	w := c.weather
	w.Link = simnic.Config{
		Seed: r.Uint64(), Latency: latency, Frames: 128, FrameSize: 2048,
		Loss: d.between(0.01, 0.1), LossAcks: d.sometimes(3, 0.01, 0.2),
		Reorder: d.between(0.02, 0.3), ReorderBy: d.duration(latency/10, 2*latency),
		Duplicate: d.sometimes(3, 0.01, 0.1),
	}
	w.TCP = tcp.Config{MaxRTO: maxRTO / 5, Seed: r.Uint64()} // many tries before the end of TIME-WAIT: there are many courses
	w.flow(d)
	w.Flow.MSS = uint16(d.between(80, 500))
	w.Link.PathMTU = 0
	return c
}

func movedAtEveryOctet(seed uint64) error {
	c := drawCourse(seed)
	for side := range c.volume {
		for _, sent := range []bool{true, false} {
			last := c.volume[side]
			if !sent {
				last = c.volume[1-side]
			}
			w, err := c.world()
			for at := uint64(0); at <= last && err == nil; at++ {
				if err = c.play(w, stop{side, sent, at}); err != nil {
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

// world makes the adapter and its cables, for any number of connections one after the
// other. Each of them meets other losses.
func (c *course) world() (*world.Lanes, error) {
	return world.NewLanes(world.LanesConfig{
		Link: c.weather.Link, Engine: engine.Config{TCP: c.weather.TCP}, Seed: c.seed, Records: c.seed%2 == 0,
		Ports: c.ports, Queues: 2,
	})
}

// play plays the course, with a move at the stop.
func (c *course) play(w *world.Lanes, s stop) (err error) {
	j := &journey{Rand: rand.New(rand.NewPCG(c.seed, s.at)), world: w}
	j.at = j.IntN(len(w.Engines))
	var ends [2]*halting
	for side := range ends {
		j.ends[side] = octets.NewTransfer(octets.Plan{Send: c.volume[side], Seed: octets.Pattern(side),
			Expect: c.volume[1-side], PeerSeed: octets.Pattern(1 - side), Chunk: 1 + j.IntN(700)})
		ends[side] = &halting{Transfer: j.ends[side], sends: everything, reads: everything}
	}
	halted := ends[s.side]
	if s.sent {
		halted.sends = s.at
	} else {
		halted.reads = s.at
	}
	if j.conn, err = w.Connect(c.weather.Flow, j.at, ends[0], ends[1]); err != nil {
		return err
	}
	if err := w.Run(time.Hour, halted.reached); err != nil {
		return fmt.Errorf("before the move: %w", err)
	}
	if !over(halted) { // the last octet can come with the end
		if err := j.move(s.side); err != nil {
			return err
		}
	}
	halted.sends, halted.reads = everything, everything
	[]*engine.Engine{w.Engines[j.at], w.Peer}[s.side].Ring(j.conn.ID[s.side])
	if err := j.play(); err != nil {
		return err
	}
	return j.returned()
}

// everything is a limit of octets that is never reached.
const everything = 1 << 62

// halting is a Transfer that stops when it has sent or has read a number of octets.
type halting struct {
	*octets.Transfer
	sends, reads uint64
}

// reached reports whether the Transfer has stopped, or has ended.
func (h *halting) reached() bool {
	return h.Sent() == h.sends || h.Received() == h.reads || over(h)
}

// Receive implements stream.ULP.
func (h *halting) Receive(now clock.Instant, s stream.Stream) {
	h.Transfer.Receive(now, &limited{Stream: s, reads: h.reads - h.Received()})
}

// Transmit implements stream.ULP. It reads what Receive has left.
func (h *halting) Transmit(now clock.Instant, s stream.Stream) {
	h.Receive(now, s)
	h.Transfer.Transmit(now, &limited{Stream: s, sends: h.sends - h.Sent()})
}

// limited is a stream that takes and shows only so many octets more.
type limited struct {
	stream.Stream
	sends, reads uint64
}

// Views implements stream.Stream.
func (l *limited) Views(dst [][]byte) int {
	n, left := l.Stream.Views(dst), l.reads
	for i, v := range dst[:n] {
		if uint64(len(v)) >= left {
			dst[i] = v[:left]
			return i + min(int(left), 1)
		}
		left -= uint64(len(v))
	}
	return n
}

// Consume implements stream.Stream.
func (l *limited) Consume(n int) {
	l.reads -= uint64(n)
	l.Stream.Consume(n)
}

// MaxEmit implements stream.Stream.
func (l *limited) MaxEmit() int { return int(min(uint64(l.Stream.MaxEmit()), l.sends)) }

// Emit implements stream.Stream.
func (l *limited) Emit(n int) []byte {
	if n == 0 {
		return nil
	}
	b := l.Stream.Emit(n)
	if b != nil {
		l.sends -= uint64(n)
	}
	return b
}
