package rdma

import (
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/offload/bell"
)

// BellLen is the length in octets of the memory of a Bell.
const BellLen = bell.PageLen

// Bell is a page of memory with which another process says that it has posted to queues in
// shared memory (Rings). The layout and the rules for the other process are in the comment of
// package offload/bell.
type Bell struct {
	adapter *Adapter
	bell    *bell.Bell
	stop    func() // ends the serving
	over    sync.Once
}

// NewBell makes a Bell in a page that the program passes. The memory must have BellLen octets,
// be aligned to 64 octets, and stay mapped until Close has returned. A file that another
// process maps too must have the seal F_SEAL_SHRINK.
//
// ring is called for each bit that the other process has set, with the number of the bit. It
// must not block, must not close the Bell, and usually calls QP.Ring. The calls come one after
// the other: from the goroutine of an engine between two steps, or, with KernelPort, from a
// goroutine of the bell.
func (a *Adapter) NewBell(memory []byte, ring func(i int)) (*Bell, error) {
	if err := a.refuse("make bell"); err != nil {
		return nil, err
	}
	done, err := a.use()
	if err != nil {
		return nil, fmt.Errorf("make bell: %w", err)
	}
	defer done()
	inner, err := bell.New(memory, ring)
	if err != nil {
		return nil, fmt.Errorf("make bell: %w", err)
	}
	b := &Bell{adapter: a, bell: inner}
	if b.stop, err = a.device.ServeBell(inner); err != nil {
		inner.Close()
		return nil, fmt.Errorf("make bell: %w", err)
	}
	if !a.hold(b) {
		b.end()
		return nil, fmt.Errorf("make bell: the adapter is %w", ErrClosed)
	}
	return b, nil
}

// Wake returns an eventfd. The other process writes to it if it has set a bit and then found
// the word asleep set. The program passes it on, and must not close it.
func (b *Bell) Wake() int { return b.bell.FD() }

// Use says that only bits below n are in use, so that the adapter looks at less memory.
// Before the first call, all are.
func (b *Bell) Use(n int) { b.bell.Use(n) }

// Close ends the Bell and closes its eventfd. When Close returns, ring does not run any more,
// and the program may unmap the memory. Close may be called twice, and
// after the adapter's Close, which also closes it.
func (b *Bell) Close() error {
	b.adapter.letGo(b)
	b.end()
	return nil
}

func (b *Bell) end() {
	b.over.Do(func() {
		b.stop()
		b.bell.Close()
	})
}
