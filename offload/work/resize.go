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
		return fmt.Errorf("the memory of this CQ belongs to the program: use ResizeIn")
	}
	n := cqSize(depth)
	if uint64(n) == c.newest.Load().size {
		return nil
	}
	_, err := c.continueIn(newCQRing(lines(n*cellLen), n))
	return err
}

// ResizeIn is Resize of a CQ whose memory the caller has passed. The completions continue in
// other memory, with the same demands as that of NewCQIn. ResizeIn returns the position of
// the first completion there. The earlier ones stay in the old memory, and so do head, armed
// and overrun, so that the caller must not unmap either. ResizeIn clears the new memory.
func (c *CQ) ResizeIn(memory []byte, depth int) (from uint64, err error) {
	if !c.mapped {
		return 0, fmt.Errorf("the memory of this CQ does not belong to the program")
	}
	if err := fitsCQ(memory, depth); err != nil {
		return 0, err
	}
	clear(memory)
	n := cqSize(depth)
	cqEndsAt(memory).shape = cqShape(n)
	return c.continueIn(newCQRing(memory[slotsAt:], n))
}

// polls is how many changes of the poller's position continueIn waits for. A poller that
// writes nonsense would keep it for ever.
const polls = 1 << 20

// continueIn makes r the ring of all completions that have no position yet, and returns the
// position of the first one.
func (c *CQ) continueIn(r *cqRing) (from uint64, err error) {
	old := c.newest.Load()
	old.next.Store(r)
	for try := 0; ; try++ {
		head := c.ends.head.Load() // before tail: the difference must not be negative
		pos := old.tail.Load()
		if waiting := pos - head; waiting > r.size {
			if c.ends.head.Load() != head && try < polls {
				continue // completions were pushed and polled meanwhile, so waiting is too large
			}
			old.next.Store(nil)
			return 0, &TooManyError{Waiting: waiting, Room: int(r.size)}
		}
		r.tail.Store(pos)
		if old.tail.CompareAndSwap(pos, pos|moved) {
			c.newest.Store(r)
			return pos, nil
		}
	}
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
