package ring

// Consumer is the emptying end of a ring. One goroutine at a time may use it.
type Consumer[T any] struct {
	mem   Memory[T]
	mask  uint32
	next  uint32 // index that the next call of Next reads
	shown uint32 // the consumer's index as last published
	ahead uint32 // the producer's index as last read
}

// NewConsumer returns the consumer of the ring in m. It starts at the index that
// it finds there.
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

// Ready returns how many values Next can take. It reads the producer's index
// only if Next has taken every value of the last read.
func (c *Consumer[T]) Ready() int {
	if c.ahead == c.next {
		c.ahead = c.mem.Producer.Load()
		if c.ahead-c.next > c.mask+1 {
			c.ahead = c.next // no producer can be that far ahead: treat the ring as empty
		}
	}
	return int(c.ahead - c.next)
}

// Next takes the oldest value. It returns false if the ring is empty. Release
// returns the slot to the producer.
func (c *Consumer[T]) Next() (v T, ok bool) {
	if c.ahead == c.next && c.Ready() == 0 {
		return v, false
	}
	v = c.mem.Slots[c.next&c.mask]
	c.next++
	return v, true
}

// Release returns the slots of the values taken since the last Release.
func (c *Consumer[T]) Release() {
	if c.shown != c.next {
		c.shown = c.next
		c.mem.Consumer.Store(c.next)
	}
}
