package tcp

// Unburdening is for when receive frames are short: what nobody reads moves into
// memory that is not the port's, a little for each connection.

// spillLen is how many octets a connection may have there.
const spillLen = 4096

// Unburden makes the connection hold as few receive frames as it can. Octets in
// order that nobody has read move into a buffer of their own, if they fit. The
// connection keeps nothing more but what fits behind them, until it consumes. Octets out of order are given up: the peer has not been told
// of them, or must keep them all the same (RFC 2018 §8). Views are not valid any
// more. Nothing that was acknowledged is lost.
func (c *Conn) Unburden() {
	c.in.drainAhead()
	c.in.unburden(c.cfg.Rings)
}

// unburden moves the runs in frames into one that is not.
func (b *inbox) unburden(r *Rings) {
	first, octets := b.inFrames()
	if b.frames == 0 {
		return
	}
	if b.stuck = octets > spillLen; b.stuck {
		return
	}
	if b.spill == nil {
		b.spill, b.rings = r.spill(), r
	}
	n := 0
	seq := b.at(first).seq
	for i := first; i < b.count; i++ {
		h := b.at(i)
		n += copy(b.spill[n:], h.data)
		if h.spilt {
			*h = held{}
		} else {
			b.release(h)
		}
	}
	*b.at(first) = held{seq: seq, data: b.spill[:n], heap: true, spilt: true}
	b.count = first + 1
}

// inFrames is the first run that lies in a frame or has been moved out of one,
// and how many octets it and those behind it have.
func (b *inbox) inFrames() (first uint32, octets int) {
	for first < b.count && b.at(first).heap && !b.at(first).spilt {
		first++
	}
	for i := first; i < b.count; i++ {
		octets += len(b.at(i).data)
	}
	return first, octets
}

// spill lends a buffer of spillLen octets. There are never more of them than
// there have been connections that needed one at the same time.
func (r *Rings) spill() []byte {
	n := len(r.spills)
	if n == 0 {
		return make([]byte, spillLen)
	}
	buf := r.spills[n-1]
	r.spills = r.spills[:n-1]
	return buf
}
