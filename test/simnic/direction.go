package simnic

import (
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
)

// Stats counts the packets of one direction. In the end every packet that was
// sent, and every duplicate, is counted in one of QueueFull, Down, Dropped,
// Lost, NoFrame and Delivered.
type Stats struct {
	Sent, SentOctets           uint64
	QueueFull                  uint64 // beyond QueueLen
	Down                       uint64 // the link was down
	Dropped                    uint64 // by the hook
	Lost                       uint64 // by chance
	Duplicated                 uint64
	Reordered                  uint64
	Corrupted                  uint64
	NoFrame                    uint64 // the receiver had no chunk in its fill ring
	Delivered, DeliveredOctets uint64
}

// departure is a packet that waits for the link to be free, or is being put
// onto it until at.
type departure struct {
	at    clock.Instant
	frame port.Frame
	sum   uint64 // of its octets when it was sent, in check mode
}

// direction is the way from one end to the other.
type direction struct {
	link     *Link
	side     Side
	from, to *end
	rng      *rand.Rand

	queue fifo[departure]
	free  clock.Instant // when the link has put the last of queue out
	sky   sky           // packets between the ends
	stats Stats
}

func newDirection(l *Link, s Side, from, to *end) *direction {
	return &direction{
		link: l, side: s, from: from, to: to,
		rng:   rand.New(rand.NewPCG(l.cfg.Seed, uint64(s))),
		queue: newFIFO[departure](min(l.cfg.TxRing, l.cfg.QueueLen)),
		sky:   newSky(int(l.cfg.maxPacket())),
	}
}

// depart lets a packet of the sender begin its way.
func (d *direction) depart(f port.Frame) {
	d.stats.Sent++
	d.stats.SentOctets += uint64(f.Len)
	switch {
	case d.link.down:
		d.stats.Down++
	case d.queue.len() == d.queue.cap():
		d.stats.QueueFull++
	default:
		d.free = max(d.free, d.link.now).Add(d.duration(f.Len))
		d.queue.push(departure{at: d.free, frame: f, sum: d.check(f)})
		return
	}
	d.from.complete(f)
}

// duration is how long n octets occupy the link, rounded up.
func (d *direction) duration(n uint32) time.Duration {
	rate := d.link.cfg.Rate
	if rate == 0 {
		return 0
	}
	return time.Duration((uint64(n)*8*uint64(time.Second) + rate - 1) / rate)
}

// next is when something happens in this direction.
func (d *direction) next() clock.Instant {
	at := d.sky.next()
	if d.queue.len() > 0 {
		at = clock.Sooner(at, d.queue.peek().at)
	}
	return at
}

// run does what happens at the time that next said.
func (d *direction) run(at clock.Instant) {
	if d.queue.len() > 0 && d.queue.peek().at == at {
		d.launch(d.queue.pop())
		return
	}
	d.land(d.sky.land())
}

// fate is what chance has in store for one packet.
type fate struct {
	lost, twice, late, corrupt bool
	delay                      time.Duration
	bit                        uint64
}

// draw always takes the same number of draws from the generator, so that one
// probability does not disturb what another brings about.
func (d *direction) draw() fate {
	c, r := &d.link.cfg, d.rng
	return fate{
		lost:    r.Float64() < c.Loss,
		twice:   r.Float64() < c.Duplicate,
		late:    r.Float64() < c.Reorder,
		corrupt: r.Float64() < c.Corrupt,
		delay:   time.Duration(r.Float64() * float64(c.ReorderBy)),
		bit:     r.Uint64(),
	}
}

// launch takes a packet out of the sender's memory, and decides what becomes
// of it.
func (d *direction) launch(p departure) {
	packet := d.from.memory(p.frame)
	if d.link.cfg.Check && d.check(p.frame) != p.sum {
		panic("simnic: a packet was written to while in flight")
	}
	f := d.draw()
	at := d.link.now.Add(d.link.cfg.Latency)
	switch {
	case d.link.down:
		d.stats.Down++
	case d.link.cfg.Drop != nil && d.link.cfg.Drop(d.side, packet):
		d.stats.Dropped++
	case f.lost:
		d.stats.Lost++
	default:
		d.fly(at, f, packet)
	}
	d.from.complete(p.frame)
}

// fly puts the packet between the ends, once or twice. Only the first copy is
// late or corrupt.
func (d *direction) fly(at clock.Instant, f fate, packet []byte) {
	first := at
	if f.late {
		first = at.Add(f.delay)
		d.stats.Reordered++
	}
	copied := d.sky.fly(first, packet)
	if f.corrupt && len(copied) > ethernetLen {
		i := f.bit % (8 * uint64(len(copied)-ethernetLen))
		copied[ethernetLen+i/8] ^= 1 << (i % 8)
		d.stats.Corrupted++
	}
	if f.twice {
		d.sky.fly(at, packet)
		d.stats.Duplicated++
	}
}

// land brings a packet to the receiver.
func (d *direction) land(packet []byte) {
	switch {
	case d.link.down:
		d.stats.Down++
	case !d.to.deliver(packet):
		d.stats.NoFrame++
	default:
		d.stats.Delivered++
		d.stats.DeliveredOctets += uint64(len(packet))
	}
}

var hashSeed = maphash.MakeSeed()

// check is a hash of the packet in check mode. It is only ever compared within
// one run.
func (d *direction) check(f port.Frame) uint64 {
	if !d.link.cfg.Check {
		return 0
	}
	return maphash.Bytes(hashSeed, d.from.memory(f))
}
