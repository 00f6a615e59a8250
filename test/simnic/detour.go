package simnic

import (
	"github.com/stag-rdma/stag/offload/clock"
)

// mostDetained is how many packets of a direction can be held at the same time.
const mostDetained = 64

// detained is a packet that later packets overtake.
type detained struct {
	fate  fate
	left  int           // number of packets that must still pass
	until clock.Instant // latest time at which the packet continues
	n     int           // octets of the packet
	mem   []byte
}

// detour holds the packets that later packets overtake.
type detour struct {
	slots []detained // unused elements keep their memory for reuse
	used  int
}

func newDetour(c *Config) (t detour) {
	if c.Overtaken > 0 {
		t.slots = make([]detained, mostDetained)
		for i := range t.slots {
			t.slots[i].mem = make([]byte, c.maxArrival())
		}
	}
	return t
}

// next returns the earliest time at which a held packet continues even if no packet
// passes it.
func (t *detour) next() clock.Instant {
	at := clock.Never
	for i := range t.slots[:t.used] {
		at = clock.Sooner(at, t.slots[i].until)
	}
	return at
}

// takes reports whether the detour holds the packet. The detour then has a copy of the
// packet.
func (t *detour) takes(d *direction, f fate, packet []byte) bool {
	c := &d.link.cfg
	if c.Overtaken == 0 || d.more.Float64() >= c.Overtaken || t.used == len(t.slots) {
		return false
	}
	p := &t.slots[t.used]
	t.used++
	p.fate, p.left = f, 1+d.more.IntN(c.OvertakenBy)
	p.until = d.link.now.Add(c.ReorderBy)
	p.n = copy(p.mem, packet)
	d.stats.Reordered++
	return true
}

// passed counts a passing packet for all held packets.
func (t *detour) passed(d *direction) {
	for i := range t.slots[:t.used] {
		t.slots[i].left--
	}
	t.release(d, func(p *detained) bool { return p.left <= 0 })
}

// release sends the held packets that are due, in the order of their arrival.
func (t *detour) release(d *direction, due func(*detained) bool) {
	kept := 0
	for i := range t.slots[:t.used] {
		p := &t.slots[i]
		if due(p) {
			d.flyNow(p.fate, p.mem[:p.n])
			continue
		}
		t.slots[kept], t.slots[i] = t.slots[i], t.slots[kept]
		kept++
	}
	t.used = kept
}
