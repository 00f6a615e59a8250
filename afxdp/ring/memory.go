package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// NeedWakeup is a bit in a ring's flags word (XDP_RING_NEED_WAKEUP). The bit is set
// while the kernel waits for a system call.
const NeedWakeup = 1

// Memory holds the shared parts of a ring: both indices, the flags word and the slots.
// The creator of a Memory must keep these parts mapped as long as a Producer or
// Consumer uses them.
type Memory[T any] struct {
	Producer *atomic.Uint32
	Consumer *atomic.Uint32
	Flags    *atomic.Uint32
	Slots    []T // the length is a power of two
}

// OnHeap returns an empty ring of n slots in Go memory. Both indices begin at start. n
// must be a power of two.
func OnHeap[T any](n int, start uint32) Memory[T] {
	m := Memory[T]{
		Producer: new(atomic.Uint32),
		Consumer: new(atomic.Uint32),
		Flags:    new(atomic.Uint32),
		Slots:    make([]T, n),
	}
	m.Producer.Store(start)
	m.Consumer.Store(start)
	return m
}

// check returns an error if the memory cannot hold a ring.
func (m Memory[T]) check() error {
	switch n := len(m.Slots); {
	case m.Producer == nil || m.Consumer == nil || m.Flags == nil:
		return fmt.Errorf("ring: index or flags word missing")
	case n == 0 || bits.OnesCount(uint(n)) != 1 || uint64(n) > 1<<31:
		return fmt.Errorf("ring: %d slots; must be a power of two, at most 2^31", n)
	}
	if used := m.Producer.Load() - m.Consumer.Load(); used > uint32(len(m.Slots)) {
		return fmt.Errorf("ring: indices %d apart with %d slots", used, len(m.Slots))
	}
	return nil
}
