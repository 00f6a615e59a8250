package ring

// Producer writes to a ring. Only one goroutine at a time may use it.
type Producer[T any] struct {
	mem    Memory[T]
	mask   uint32
	next   uint32 // index of the slot that the next Put writes
	shown  uint32 // last published index of the producer
	behind uint32 // last read index of the consumer
}

// NewProducer returns the producer of the ring in m. The producer starts at the index
// that m holds.
func NewProducer[T any](m Memory[T]) (Producer[T], error) {
	if err := m.check(); err != nil {
		return Producer[T]{}, err
	}
	at := m.Producer.Load()
	return Producer[T]{
		mem: m, mask: uint32(len(m.Slots) - 1),
		next: at, shown: at, behind: m.Consumer.Load(),
	}, nil
}

// Size returns the number of slots.
func (p *Producer[T]) Size() int { return len(p.mem.Slots) }

// Room returns how many Puts will succeed. If the last read of the consumer's index
// shows room for want values, Room does not read that index again. The result may
// therefore be too low, but it is at least want if the ring has room for want.
func (p *Producer[T]) Room(want int) int {
	free := p.free()
	if free < want {
		p.behind = p.mem.Consumer.Load()
		free = p.free()
	}
	return free
}

// free returns the room by the last read of the consumer's index. It returns 0 if that
// index is ahead of next, because the difference is huge then.
func (p *Producer[T]) free() int {
	used := p.next - p.behind
	if used > p.mask {
		return 0
	}
	return int(p.mask + 1 - used)
}

// Put writes v into the next slot. It returns false if the ring is full. The consumer
// sees v only after Publish.
func (p *Producer[T]) Put(v T) bool {
	if p.next-p.behind > p.mask && p.Room(1) == 0 {
		return false
	}
	p.mem.Slots[p.next&p.mask] = v
	p.next++
	return true
}

// Publish makes all values since the last Publish visible to the consumer.
func (p *Producer[T]) Publish() {
	if p.shown != p.next {
		p.shown = p.next
		p.mem.Producer.Store(p.next)
	}
}

// Pending returns how many published values the consumer has not taken.
func (p *Producer[T]) Pending() int {
	p.behind = p.mem.Consumer.Load()
	return int(p.shown - p.behind)
}

// NeedsWakeup reports whether the kernel waits for a system call.
func (p *Producer[T]) NeedsWakeup() bool { return p.mem.Flags.Load()&NeedWakeup != 0 }
