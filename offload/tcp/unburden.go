package tcp

// Unburdening is for when receive frames are short: what nobody reads moves into
// memory that is not the port's, a little for each connection.

// spillLens are how many octets a connection may have there: commonly, and where
// more came before it was seen that nobody reads.
var spillLens = [...]int{4 << 10, 64 << 10}

// Unburden makes the connection hold as few receive frames as it can. Octets in
// order that nobody has read move into a buffer of their own, if they fit. The
// connection keeps nothing more but what fits behind them, until it consumes. Octets out of order that lie in frames are given up: the peer has not been told
// of them, or must keep them all the same (RFC 2018 §8). Views are not valid any
// more. Nothing that was acknowledged is lost.
func (c *Conn) Unburden() {
	if c.in.aheadFrames > 0 {
		c.in.evictFrames()
	}
	c.in.unburden(c.cfg.Rings)
}

// unburden moves the runs in frames into one that is not.
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

// inFrames is the first run that lies in a frame or has been moved out of one,
// and how many octets it and those behind it have.
func (b *inbox) inFrames() (first uint32, octets int) {
	for first < b.count && !b.at(first).framed() && !b.at(first).spilt {
		first++
	}
	for i := first; i < b.count; i++ {
		octets += len(b.at(i).data)
	}
	return first, octets
}

// spill lends a buffer for n octets, at most the largest of spillLens. There are
// never more of them than there have been connections that needed one at the
// same time.
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

// unspill takes back what spill has lent.
func (r *Rings) unspill(buf []byte) {
	size := 0
	for spillLens[size] != len(buf) {
		size++
	}
	r.spills[size] = append(r.spills[size], buf)
}
