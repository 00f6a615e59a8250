package ring

// Producer is the filling end of a ring. One goroutine at a time may use it.
type Producer[T any] struct {
	mem    Memory[T]
	mask   uint32
	next   uint32 // index that the next Put writes
	shown  uint32 // the producer's index as last published
	behind uint32 // the consumer's index as last read
}

// NewProducer returns the producer of the ring in m. It starts at the index that
// it finds there.
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

// Size is the number of slots.
func (p *Producer[T]) Size() int { return len(p.mem.Slots) }

// Room returns how many Puts will succeed. It reads the consumer's index only if
// the index as last read leaves room for fewer than want; the result may therefore
// be too low, but not below want if there is room for want.
func (p *Producer[T]) Room(want int) int {
	free := p.free()
	if free < want {
		p.behind = p.mem.Consumer.Load()
		free = p.free()
	}
	return free
}

// free returns the room by the consumer's index as last read. If that index is
// ahead of next, the difference is huge and free returns 0.
func (p *Producer[T]) free() int {
	used := p.next - p.behind
	if used > p.mask {
		return 0
	}
	return int(p.mask + 1 - used)
}

// Put writes v into the next slot. It returns false if the ring is full. The
// consumer sees v after Publish.
func (p *Producer[T]) Put(v T) bool {
	if p.next-p.behind > p.mask && p.Room(1) == 0 {
		return false
	}
	p.mem.Slots[p.next&p.mask] = v
	p.next++
	return true
}

// Publish shows the consumer the values that were Put since the last Publish.
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
