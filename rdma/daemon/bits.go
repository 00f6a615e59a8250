package daemon

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
)

// ringer is a queue that has a bit in a bell page.
type ringer interface{ Ring() }

// bitmap says which queue has which bit. ring runs on an engine's goroutine, and takes no lock.
type bitmap struct {
	words [proto.BellBits / 64]atomic.Pointer[[64]atomic.Pointer[ringer]]

	mu    sync.Mutex // guards used; no engine takes it
	used  [proto.BellBits / 64]uint64
	limit func(n int) // told the number of bits to look at
}

// ring rings the queue of a bit. A bit without a queue does nothing.
func (m *bitmap) ring(i int) {
	if i < 0 || i >= proto.BellBits {
		return
	}
	if w := m.words[i/64].Load(); w != nil {
		if q := w[i%64].Load(); q != nil {
			(*q).Ring()
		}
	}
}

// add gives q the lowest free bit.
func (m *bitmap) add(q ringer) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.used {
		if m.used[w] == ^uint64(0) {
			continue
		}
		b := bits.TrailingZeros64(^m.used[w])
		m.used[w] |= 1 << b
		if m.words[w].Load() == nil {
			m.words[w].Store(new([64]atomic.Pointer[ringer]))
		}
		m.words[w].Load()[b].Store(&q)
		m.limit(m.top())
		return 64*w + b, nil
	}
	return 0, unix.EDQUOT
}

// remove frees a bit.
func (m *bitmap) remove(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[i/64] &^= 1 << (i % 64)
	m.words[i/64].Load()[i%64].Store(nil)
	m.limit(m.top())
}

// top returns a number that is larger than every bit in use.
func (m *bitmap) top() int {
	for w := len(m.used) - 1; w >= 0; w-- {
		if m.used[w] != 0 {
			return 64*w + bits.Len64(m.used[w])
		}
	}
	return 0
}
