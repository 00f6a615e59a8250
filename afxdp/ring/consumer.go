package ring

// Consumer reads from a ring. Only one goroutine at a time may use it.
type Consumer[T any] struct {
	mem   Memory[T]
	mask  uint32
	next  uint32 // index of the value that Next returns
	shown uint32 // last published index of the consumer
	ahead uint32 // last read index of the producer
}

// NewConsumer returns the consumer of the ring in m. The consumer starts at the index
// that m holds.
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

// Size returns the number of slots.
func (c *Consumer[T]) Size() int { return len(c.mem.Slots) }

// Ready returns how many values Next can take. It reads the producer's index only if
// Next has taken every value that the last read showed.
func (c *Consumer[T]) Ready() int {
	if c.ahead == c.next {
		c.ahead = c.mem.Producer.Load()
		if c.ahead-c.next > c.mask+1 {
			c.ahead = c.next // no producer can be that far ahead, so treat the ring as empty
		}
	}
	return int(c.ahead - c.next)
}

// Next takes the oldest value. It returns false if the ring is empty. The slot stays in
// use until Release.
func (c *Consumer[T]) Next() (v T, ok bool) {
	if c.ahead == c.next && c.Ready() == 0 {
		return v, false
	}
	v = c.mem.Slots[c.next&c.mask]
	c.next++
	return v, true
}

// Release returns the slots of all taken values to the producer.
func (c *Consumer[T]) Release() {
	if c.shown != c.next {
		c.shown = c.next
		c.mem.Consumer.Store(c.next)
	}
}
