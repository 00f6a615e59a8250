package flow

import "runtime/debug"

// scatter is a position in a list of buffers. The zero scatter is the end of no octets.
type scatter struct {
	pieces [][]byte // the buffers from the position on
	off    int      // octets of the first buffer that are before the position
}

// at returns the position n octets behind the beginning of the list.
func at(pieces [][]byte, n int) scatter {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	return scatter{pieces, n}
}

// next returns the octets at the position, as far as they are contiguous and at most n, and
// moves behind them. It returns nil at the end of the list.
func (c *scatter) next(n int) []byte {
	for len(c.pieces) > 0 {
		if mem := c.pieces[0][c.off:]; len(mem) > 0 {
			n = min(n, len(mem))
			c.off += n
			return mem[:n:n]
		}
		c.pieces, c.off = c.pieces[1:], 0
	}
	return nil
}

// put copies b to the position, and moves behind it. It returns false if the list has fewer
// octets, or if its memory cannot be accessed.
func (c *scatter) put(b []byte) (ok bool) {
	defer guard(debug.SetPanicOnFault(true), &ok)
	for len(b) > 0 {
		mem := c.next(len(b))
		if mem == nil {
			return false
		}
		b = b[copy(mem, b):]
	}
	return true
}

// get fills b from the position on, and moves behind it. It returns false as put does.
func (c *scatter) get(b []byte) (ok bool) {
	defer guard(debug.SetPanicOnFault(true), &ok)
	for len(b) > 0 {
		mem := c.next(len(b))
		if mem == nil {
			return false
		}
		b = b[copy(b, mem):]
	}
	return true
}

// Gather fills b with the first octets of a list of buffers. It returns false if the list
// has fewer, or if its memory cannot be accessed.
func Gather(b []byte, list [][]byte) bool {
	c := at(list, 0)
	return c.get(b)
}

// Scatter copies b to the first octets of a list of buffers. It returns false as Gather
// does.
func Scatter(list [][]byte, b []byte) bool {
	c := at(list, 0)
	return c.put(b)
}

// guard ends an access to memory of the application that has faulted: the application may
// have unmapped the memory, or truncated the file that the memory maps. Without guard such
// a fault ends the process. Callers defer guard with the goroutine's previous setting of
// SetPanicOnFault. guard recovers from no other panic.
func guard(was bool, ok *bool) {
	debug.SetPanicOnFault(was)
	if *ok {
		return
	}
	p := recover()
	if _, fault := p.(interface{ Addr() uintptr }); p != nil && !fault {
		panic(p)
	}
}
