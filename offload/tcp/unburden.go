package tcp

// Unburdening is for a shortage of receive frames. Octets that the upper layer does not consume move into memory
// outside of the port. The amount is limited for each connection.

// spillLens are the sizes of a spill buffer in octets. The first is the usual size. The second is for a connection
// that received more before it was known not to consume.
var spillLens = [...]int{4 << 10, 64 << 10}

// Unburden makes the connection hold as few receive frames as possible. In-order octets that the upper layer has not
// consumed move into a separate buffer, if they fit. Until the upper layer consumes, the connection keeps further
// octets only if the buffer has room for them. Unburden drops out-of-order octets in frames. The peer still has
// these octets: either it has got no SACK for them, or it must keep them nevertheless (RFC 2018 §8). Unburden
// invalidates slices from Views. No acknowledged octet is lost.
func (c *Conn) Unburden() {
	if c.in.aheadFrames > 0 {
		c.in.evictFrames()
	}
	c.in.unburden(c.cfg.Rings)
}

// unburden moves the runs in frames into one run in a spill buffer.
func (b *inbox) unburden(r *Rings) {
	if b.frames == 0 {
		return
	}
	first, octets := b.inFrames()
	if b.stuck = octets > spillLens[len(spillLens)-1]; b.stuck {
		return
	}
	old := b.spill
	if len(old) < octets {
		b.spill, b.rings = r.spill(octets), r
	}
	n, begin := 0, b.at(first).seq
	for i := first; i < b.count; i++ {
		h := b.at(i)
		n += copy(b.spill[n:], h.data)
		if h.spilt {
			*h = held{}
		} else {
			b.release(h)
		}
	}
	if old != nil && len(old) != len(b.spill) {
		r.unspill(old)
	}
	*b.at(first) = held{seq: begin, data: b.spill[:n], heap: true, spilt: true}
	b.count = first + 1
}

// inFrames returns the first run that lies in a frame or has been moved out of one. octets is the number of octets
// in the first such run and in all later runs.
func (b *inbox) inFrames() (first uint32, octets int) {
	for first < b.count && !b.at(first).framed() && !b.at(first).spilt {
		first++
	}
	for i := first; i < b.count; i++ {
		octets += len(b.at(i).data)
	}
	return first, octets
}

// spill lends a buffer for n octets, at most the largest of spillLens. There are never more buffers than connections
// have needed at the same time.
func (r *Rings) spill(n int) []byte {
	size := 0
	for spillLens[size] < n {
		size++
	}
	free := r.spills[size]
	if len(free) == 0 {
		return make([]byte, spillLens[size])
	}
	r.spills[size] = free[:len(free)-1]
	return free[len(free)-1]
}

// unspill takes back a buffer that spill has lent.
func (r *Rings) unspill(buf []byte) {
	size := 0
	for spillLens[size] != len(buf) {
		size++
	}
	r.spills[size] = append(r.spills[size], buf)
}
