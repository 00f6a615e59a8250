package work

import "fmt"

// Resize changes how many completions the CQ holds to at least depth, while any
// goroutines push and one polls. One goroutine at a time may call Resize. Resize fails if
// more completions wait than then fit, and if the caller has passed the CQ's memory.
//
// Resize makes another ring and ends the old one at its present tail with one
// compare-and-swap. Pushes that come later, and pushes that had already chosen the old
// ring, find the next ring. The poller empties the old ring first. Positions continue in
// the new ring, so that the completions that wait in the old ring count there too.
func (c *CQ) Resize(depth int) error {
	if c.mapped {
		return fmt.Errorf("the memory of this CQ belongs to the program: make another CQ")
	}
	old, n := c.newest.Load(), cqSize(depth)
	if uint64(n) == old.size {
		return nil
	}
	r := newCQRing(lines(n*cellLen), n)
	old.next.Store(r)
	for {
		head := c.ends.head.Load() // before tail: the difference must not be negative
		pos := old.tail.Load()
		if waiting := pos - head; waiting > r.size {
			if c.ends.head.Load() != head {
				continue // completions were pushed and polled meanwhile, so waiting is too large
			}
			old.next.Store(nil)
			return &TooManyError{Waiting: waiting, Room: n}
		}
		r.tail.Store(pos)
		if old.tail.CompareAndSwap(pos, pos|moved) {
			break
		}
	}
	c.newest.Store(r)
	return nil
}

// TooManyError is the error of Resize when more completions wait than would fit.
type TooManyError struct {
	Waiting uint64 // completions that wait to be polled
	Room    int    // completions that the CQ would hold
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%d completions wait, and %d would fit: poll them first", e.Waiting, e.Room)
}

// after returns the ring that has position pos if r has it no more, or nil.
func (r *cqRing) after(pos uint64) *cqRing {
	if r.next.Load() == nil {
		return nil // the usual case: this spares the line of the pushes
	}
	// A refused Resize withdraws its ring. Once the tail has the bit moved, next no longer
	// changes.
	if tail := r.tail.Load(); tail&moved == 0 || pos < tail&^moved {
		return nil
	}
	return r.next.Load()
}
