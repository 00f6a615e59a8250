package ring

// Consumer is the emptying end of a ring. One goroutine at a time may use it.
type Consumer[T any] struct {
	mem   Memory[T]
	mask  uint32
	next  uint32 // slot of the next Next
	shown uint32 // what the producer has been told
	ahead uint32 // the producer's index as last read
}

// NewConsumer returns the consumer of the ring in m, going on from the index
// that it finds there.
func NewConsumer[T any](m Memory[T]) (Consumer[T], error) {
	if err := m.check(); err != nil {
		return Consumer[T]{}, err
	}
	at := m.Consumer.Load()
	return Consumer[T]{
		mem: m, mask: uint32(len(m.Slots) - 1),
		next: at, shown: at, ahead: m.Producer.Load(),
	}, nil
}

// Size is the number of slots.
func (c *Consumer[T]) Size() int { return len(c.mem.Slots) }

// Ready reports how many values can be taken. It looks at the producer's index
// only when nothing is left of the last look.
func (c *Consumer[T]) Ready() int {
	if c.ahead == c.next {
		c.ahead = c.mem.Producer.Load()
		if c.ahead-c.next > c.mask+1 {
			c.ahead = c.next // no producer can be that far ahead; believe nothing
		}
	}
	return int(c.ahead - c.next)
}

// Next takes the oldest value. It returns false when the ring is empty. The
// slot is the producer's again after Release.
func (c *Consumer[T]) Next() (v T, ok bool) {
	if c.ahead == c.next && c.Ready() == 0 {
		return v, false
	}
	v = c.mem.Slots[c.next&c.mask]
	c.next++
	return v, true
}

// Release gives the slots of the values taken since the last time back.
func (c *Consumer[T]) Release() {
	if c.shown != c.next {
		c.shown = c.next
		c.mem.Consumer.Store(c.next)
	}
}
