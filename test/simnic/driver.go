package simnic

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// Driver is the model of a driver in zero-copy mode: it has the chunks until it says that it is
// done with them, and it says so when it likes. The zero Driver completes each packet when it
// has departed, and takes receive chunks one at a time, as the kernel does in copy mode.
type Driver struct {
	// Hold is how many packets the driver keeps although they have departed. It completes one
	// of them only when more packets depart, as a driver does that looks at its transmit queue
	// only to make room.
	Hold int
	// HoldFor is the longest time for which a packet is kept, as by an interrupt that comes
	// late. 0 means no limit: only more packets help.
	HoldFor time.Duration
	// Batch is how many packets are completed together. 0 means 1.
	Batch int
	// Shuffle says that packets are completed in random order.
	Shuffle bool
	// Fill is how many chunks the driver takes from the fill ring at a time. It takes them when
	// it has none left, and only if so many are there. 0 means that it takes one for each packet.
	Fill int
}

// wrong returns what is wrong with d at an end with this number of chunks of each kind.
func (d Driver) wrong(frames int) error {
	switch {
	case d.Hold < 0 || d.HoldFor < 0 || d.Batch < 0 || d.Fill < 0:
		return fmt.Errorf("Driver %+v has a negative field", d)
	case d.Hold+d.Batch >= frames:
		return fmt.Errorf("Driver %+v can keep all %d transmit chunks", d, frames)
	case d.Fill > frames:
		return fmt.Errorf("Driver %+v waits for more than the %d receive chunks", d, frames)
	}
	return nil
}

// driver is a Driver at work at one end.
type driver struct {
	Driver
	rng    *rand.Rand
	done   []kept    // packets that have departed and are not completed, in the order of departure
	posted fifo[int] // receive chunks that the driver has taken from the fill ring
}

// kept is a packet that has departed.
type kept struct {
	departure
	until clock.Instant // clock.Never without HoldFor
}

func newDriver(c *Config, s Side) driver {
	d := c.Driver
	d.Batch = max(d.Batch, 1)
	return driver{
		Driver: d,
		rng:    rand.New(rand.NewPCG(c.Seed, 4+uint64(s))),
		done:   make([]kept, 0, d.Hold+d.Batch),
		posted: newFIFO[int](max(d.Fill, 1)),
	}
}

// due returns when the driver completes packets although no more depart.
func (d *driver) due() clock.Instant {
	if len(d.done) == 0 {
		return clock.Never
	}
	at := d.done[0].until
	for _, k := range d.done[1:] {
		at = clock.Sooner(at, k.until)
	}
	return at
}

// complete takes a packet that has departed, or will never depart. The packet's place in the
// transmit ring is free again. The driver has the chunk until it completes the packet.
func (e *end) complete(p departure) {
	e.flying--
	d := &e.driver
	until := clock.Never
	if d.HoldFor > 0 {
		until = e.link.now.Add(d.HoldFor)
	}
	if d.done = append(d.done, kept{p, until}); len(d.done) == d.Hold+d.Batch {
		e.release(d.Batch)
	}
}

// release completes n packets: the first ones, or any.
func (e *end) release(n int) {
	d := &e.driver
	for i := range n {
		if d.Shuffle {
			other := i + d.rng.IntN(len(d.done)-i)
			d.done[i], d.done[other] = d.done[other], d.done[i]
		}
		p := d.done[i]
		if e.link.cfg.Check && e.out.check(p.frame) != p.sum {
			panic("simnic: a packet was written to before it was completed")
		}
		e.drop(e.index(p.frame.Addr), byLink)
	}
	d.done = append(d.done[:0], d.done[n:]...)
}

// vacant takes a receive chunk for a packet that arrives. ok is false if the driver has none.
func (e *end) vacant() (i int, ok bool) {
	d := &e.driver
	if d.Fill == 0 {
		return e.take(&e.fill, byQueue)
	}
	if d.posted.len() == 0 && e.fill.len() >= d.Fill {
		for range d.Fill {
			d.posted.push(e.fill.pop())
		}
	}
	return e.take(&d.posted, byQueue)
}
