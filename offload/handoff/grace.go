package handoff

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Grace waits until the kernel's stack has processed all packets that had passed the
// XDP program when the wait began. One barrier serves all waits that began before it.
// Many take-overs at once therefore cost little more than one. The zero Grace is ready
// to use. A Grace is safe for concurrent use.
type Grace struct {
	mu      sync.Mutex
	next    *round // round of the waits that began after the running barrier began
	running bool

	// barrier replaces the kernel's barrier in tests.
	barrier func() error
}

// round is one barrier and the goroutines that wait for it.
type round struct {
	done chan struct{}
	err  error // error of the barrier, valid when done is closed
}

// Wait returns after a grace period that began after the call, or with ctx's
// error.
func (g *Grace) Wait(ctx context.Context) error {
	r := g.join()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join enters the next round. The barrier of that round has not begun.
func (g *Grace) join() *round {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &round{done: make(chan struct{})}
	}
	if !g.running {
		g.running = true
		go g.run()
	}
	return g.next
}

// run runs rounds until no goroutine waits.
func (g *Grace) run() {
	for {
		g.mu.Lock()
		r := g.next
		g.next = nil
		if r == nil {
			g.running = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if g.barrier != nil {
			r.err = g.barrier()
		} else {
			r.err = membarrier()
		}
		close(r.done)
	}
}

// membarrier waits for an RCU grace period. The kernel carries every packet from the
// driver to its socket within one RCU read section.
func membarrier() error {
	const global = 1 // value of MEMBARRIER_CMD_GLOBAL
	for {
		_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return fmt.Errorf("%w: %w", ErrNoBarrier, errno)
	}
}
