// Package gate has a gate that lets calls through until it is shut, for example while an
// upgrade freezes what they use.
package gate

import (
	"context"
	"sync"
)

// Gate lets calls through until it is shut. The zero Gate is open. A Gate is safe for
// concurrent use.
type Gate struct {
	mu   sync.Mutex    // guards the fields below
	in   int           // calls in progress
	shut chan struct{} // channel that is closed when the gate opens again; nil: the gate is open
	idle chan struct{} // channel that is closed when the last call has left; nil: nobody waits
	err  error         // the gate stays shut because of err
}

// Enter waits until the gate is open, or ctx ends. The caller must call Leave unless Enter
// fails.
func (g *Gate) Enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		shut, err := g.shut, g.err
		if shut == nil && err == nil {
			g.in++
		}
		g.mu.Unlock()
		if err != nil || shut == nil {
			return err
		}
		select {
		case <-shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Leave ends a call that Enter let through.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.in--; g.in == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Close shuts the gate, and waits until the last call has left. If ctx ends first, the
// gate is open again.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	g.shut = make(chan struct{})
	var idle chan struct{}
	if g.in > 0 {
		idle = make(chan struct{})
		g.idle = idle
	}
	g.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		g.Open(nil)
		return context.Cause(ctx)
	}
}

// Open ends Close. With an error, calls that wait and all later calls fail with it.
func (g *Gate) Open(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err, g.idle = err, nil
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}
