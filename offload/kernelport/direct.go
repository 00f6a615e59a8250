package kernelport

import "github.com/stag-rdma/stag/offload/stream"

// direct reads octets of the socket to the place that the ULP names, instead of into the
// ring. It belongs to the step.
type direct struct {
	ulp    stream.Placer // nil: the ULP names no places
	bulk   bool          // a long PDU is arriving, or has just arrived
	wanted int           // octets of the places of the read that is being made
	list   [8][]byte     // memory of that read
}

// Limits of direct reads.
const (
	// leastDirect is the length in octets from which on a read goes to its place, unless it
	// is the rest of a long PDU. For less, one read of many octets into the ring is cheaper
	// than several.
	leastDirect = 16 << 10

	// behind is how many octets a read takes that follow those with a place. They are
	// copied twice, but save a system call for the next header.
	behind = 2 << 10
)

// pieces returns the memory for the next read: places, and behind them a part of space.
// held says that the ring has octets. An empty list means a read into the returned part of
// space.
func (d *direct) pieces(space []byte, held bool) (list [][]byte, rest []byte) {
	d.wanted = 0
	if d.ulp == nil {
		return nil, space
	}
	if !held {
		n := d.ulp.Place(d.list[:len(d.list)-1])
		for _, p := range d.list[:n] {
			d.wanted += len(p)
		}
		if d.wanted >= leastDirect || d.bulk && d.wanted != 0 {
			rest = space[:min(len(space), behind)]
			d.list[n] = rest
			return d.list[:n+1], rest
		}
		d.wanted = 0
		clear(d.list[:n])
	}
	if d.bulk { // after a long PDU another one may follow
		space = space[:min(len(space), behind)]
	}
	return nil, space
}

// placed tells the ULP of the first of n octets that were read, and returns how many are in
// the ring.
func (d *direct) placed(n int) (rest int) {
	if d.bulk = d.wanted != 0; !d.bulk {
		return n
	}
	there := min(n, d.wanted)
	d.ulp.Placed(there)
	return n - there
}
