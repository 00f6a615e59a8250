package kernelport

// outbox is a queue of emitted octets. Each piece of the queue is contiguous and does
// not move after add has returned it. If the end of the buffer is too short for a
// piece, the piece goes to the front of the buffer, and the rest of the end stays
// unused for that round.
//
//	front: [0, wrapped)            filled after the end, empty if wrapped is 0
//	free:  [wrapped, head)
//	end:   [head, tail)            older than the front
type outbox struct {
	buf                 []byte
	head, tail, wrapped int
}

// used returns how many octets the queue holds.
func (o *outbox) used() int { return o.tail - o.head + o.wrapped }

// add returns memory for n octets at the end of the queue, or nil if there is no
// room.
func (o *outbox) add(n int) []byte {
	switch {
	case o.wrapped == 0 && n <= len(o.buf)-o.tail:
		o.tail += n
		return o.buf[o.tail-n : o.tail : o.tail]
	case n <= o.head-o.wrapped:
		o.wrapped += n
		return o.buf[o.wrapped-n : o.wrapped : o.wrapped]
	}
	return nil
}

// next returns the oldest octets, as far as they are contiguous.
func (o *outbox) next() []byte { return o.buf[o.head:o.tail] }

// drop releases the first n octets of next.
func (o *outbox) drop(n int) {
	o.head += n
	if o.head == o.tail {
		o.head, o.tail, o.wrapped = 0, o.wrapped, 0
	}
}
