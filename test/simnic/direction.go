package simnic

import (
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

// Stats counts the packets of one direction. In the end every sent packet and every
// duplicate is counted in one of QueueFull, Down, Dropped, Lost, TooLong, NoFrame and
// Delivered. Each Split adds one packet to this sum. Each Merged removes one.
type Stats struct {
	Sent, SentOctets           uint64
	QueueFull                  uint64 // packets for which the queue had no room: see QueueLen
	Down                       uint64 // packets lost while the link was down
	Dropped                    uint64 // packets that the Drop hook dropped
	Lost                       uint64 // packets that random loss dropped
	Duplicated                 uint64
	Reordered                  uint64
	Corrupted                  uint64
	Forged                     uint64 // packets that were changed so that the checksum stayed correct
	TooLong                    uint64 // packets longer than PathMTU
	Split, Merged              uint64
	Marked                     uint64
	NoFrame                    uint64 // packets for which the receiver had no chunk in its fill ring
	Delivered, DeliveredOctets uint64
}

// Harmed returns how many packets did not arrive as they were sent. It does not count
// packets that arrived twice or late, or that were split or merged.
func (s *Stats) Harmed() uint64 {
	return s.QueueFull + s.Down + s.Dropped + s.Lost + s.TooLong + s.Corrupted + s.Forged + s.NoFrame
}

// departure is a packet that waits for the link, with the time at which its
// transmission ends.
type departure struct {
	at    clock.Instant
	frame port.Frame
	sum   uint64 // hash of the octets at the time of Send, in check mode
}

// direction is the path from one end to the other.
type direction struct {
	link     *Link
	side     Side
	from, to *end
	rng      *rand.Rand // random numbers for the faults of single packets
	more     *rand.Rand // random numbers for faults added later, which must not change the sequence of rng

	queue  fifo[departure]
	free   clock.Instant // time at which the link will have transmitted the last packet of queue
	bad    bool          // the Gilbert-Elliott model of Config.Burst is in its bad state
	since  clock.Instant // time of the last change of bad
	box    middlebox
	detour detour
	sky    sky    // packets in flight between the ends
	whole  []byte // the packet that departs, if this end completes its checksum
	stats  Stats
}

func newDirection(l *Link, s Side, from, to *end) *direction {
	return &direction{
		link: l, side: s, from: from, to: to,
		rng:    rand.New(rand.NewPCG(l.cfg.Seed, uint64(s))),
		more:   rand.New(rand.NewPCG(l.cfg.Seed, 2+uint64(s))),
		queue:  newFIFO[departure](min(l.cfg.TxRing, l.cfg.QueueLen)),
		box:    newMiddlebox(&l.cfg),
		detour: newDetour(&l.cfg),
		sky:    newSky(l.cfg.maxArrival(), 2*l.cfg.Frames),
	}
}

// depart puts a packet of the sender into the queue.
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
	d.from.complete(departure{frame: f, sum: d.check(f)})
}

// duration returns how long n octets occupy the link, rounded up.
func (d *direction) duration(n uint32) time.Duration {
	rate := d.link.cfg.Rate
	if rate == 0 {
		return 0
	}
	return time.Duration((uint64(n)*8*uint64(time.Second) + rate - 1) / rate)
}

// next returns when the next event of this direction is due.
func (d *direction) next() clock.Instant {
	at := clock.Sooner(d.sky.next(), clock.Sooner(d.box.until, clock.Sooner(d.detour.next(), d.from.driver.due())))
	if d.queue.len() > 0 {
		at = clock.Sooner(at, d.queue.peek().at)
	}
	return at
}

// run handles the event that is due at the time from next.
func (d *direction) run(at clock.Instant) {
	switch {
	case d.queue.len() > 0 && d.queue.peek().at == at:
		d.launch(d.queue.pop())
	case d.from.driver.due() == at:
		d.from.release(len(d.from.driver.done))
	case d.box.until == at:
		d.letGo()
	case d.detour.next() == at:
		d.detour.release(d, func(p *detained) bool { return p.until == at })
	default:
		d.land(d.sky.land())
	}
}

// fate holds the random faults of one packet.
type fate struct {
	lost, twice, late, corrupt bool
	delay                      time.Duration
	bit                        uint64
}

// draw draws the faults of one packet. The number of random numbers is always the same,
// so that a change of one probability does not change the effects of another.
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

// launch removes a packet from the sender's memory and applies the packet's faults.
func (d *direction) launch(p departure) {
	packet := d.summed(p.frame)
	if d.link.cfg.Check && d.check(p.frame) != p.sum {
		panic("simnic: a packet was written to while in flight")
	}
	f := d.draw()
	switch {
	case d.link.down:
		d.stats.Down++
	case d.link.cfg.Drop != nil && d.link.cfg.Drop(d.side, packet):
		d.stats.Dropped++
	case len(packet)-ethernetLen > int(d.link.cfg.PathMTU):
		d.stats.TooLong++
	case f.lost || d.burst() || d.losesAck(packet):
		d.stats.Lost++
	default:
		d.pass(f, packet)
	}
	d.from.complete(p)
}

// summed returns the packet of f with its checksum. It is valid until the next call.
func (d *direction) summed(f port.Frame) []byte {
	packet := d.from.memory(f)
	if f.Sum == 0 {
		return packet
	}
	d.whole = append(d.whole[:0], packet...)
	wire.Complete(d.whole, int(f.Sum))
	return d.whole
}

// burst reports whether the Gilbert-Elliott model loses the packet.
func (d *direction) burst() bool {
	b := &d.link.cfg.Burst
	if b.Enter == 0 {
		return false
	}
	turn := b.Enter
	if d.bad {
		turn = b.Leave
	}
	if over := d.bad && b.For > 0 && d.link.now.Sub(d.since) >= b.For; d.more.Float64() < turn || over {
		d.bad, d.since = !d.bad, d.link.now
	}
	return d.bad && d.more.Float64() < b.Loss
}

// losesAck reports whether the packet is a pure ACK that is to be lost.
func (d *direction) losesAck(packet []byte) bool {
	var p wire.Packet
	return d.link.cfg.LossAcks > 0 && wire.ParsePacket(packet, &p) == wire.OK && !p.ICMP &&
		p.Payload == p.End && p.TCP.Flags&(wire.ACK|wire.FIN|wire.SYN|wire.RST) == wire.ACK &&
		d.more.Float64() < d.link.cfg.LossAcks
}

// fly puts the packet in flight, once or twice, or into the detour. Only the first copy
// can be late or harmed.
func (d *direction) fly(f fate, packet []byte) {
	if d.detour.takes(d, f, packet) {
		return
	}
	d.flyNow(f, packet)
	d.detour.passed(d)
}

func (d *direction) flyNow(f fate, packet []byte) {
	at := d.link.now.Add(d.link.cfg.Latency)
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
	if d.link.cfg.Forge > 0 && d.more.Float64() < d.link.cfg.Forge && forge(copied, d.more) {
		d.stats.Forged++
	}
	if d.link.cfg.Mark > 0 && d.more.Float64() < d.link.cfg.Mark && markCE(copied) {
		d.stats.Marked++
	}
	if f.twice {
		d.sky.fly(at, packet)
		d.stats.Duplicated++
	}
}

// land delivers a packet to the receiver.
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

// check returns a hash of the packet in check mode. Hashes of different runs cannot be compared.
func (d *direction) check(f port.Frame) uint64 {
	if !d.link.cfg.Check {
		return 0
	}
	return maphash.Bytes(hashSeed, d.from.memory(f))
}
