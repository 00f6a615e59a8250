package engine

import (
	"context"
	"errors"
	"sync/atomic"
)

// ErrStopped is returned by calls to an engine that has stopped.
var ErrStopped = errors.New("engine stopped")

// command is a function to run on the queue's goroutine.
type command struct {
	run  func()
	done chan struct{} // channel that is closed when run has returned
	next *command
}

// commands is a list of commands. Any goroutine may append. The queue's goroutine
// empties the list. Commands are rare and may allocate. The test for an empty list
// costs one load.
type commands struct {
	head atomic.Pointer[command]
}

func (c *commands) add(cmd *command) {
	for {
		old := c.head.Load()
		cmd.next = old
		if c.head.CompareAndSwap(old, cmd) {
			return
		}
	}
}

func (c *commands) pending() bool { return c.head.Load() != nil }

// runAll runs the commands that were added, oldest first.
func (c *commands) runAll() {
	if !c.pending() {
		return
	}
	var first *command
	for cmd := c.head.Swap(nil); cmd != nil; {
		rest := cmd.next
		cmd.next, first = first, cmd
		cmd = rest
	}
	for cmd := first; cmd != nil; cmd = cmd.next {
		cmd.run()
		close(cmd.done)
	}
}

// callThrough is call for a caller that must know whether fn has run. If ctx has ended
// already, callThrough does nothing. Otherwise it waits for fn even if ctx ends.
func (e *Engine) callThrough(ctx context.Context, fn func()) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.call(context.WithoutCancel(ctx), fn)
}

// call runs fn on the queue's goroutine and waits for the end of fn. If ctx ends first,
// fn still runs later unless the engine stops.
func (e *Engine) call(ctx context.Context, fn func()) error { return e.await(ctx, e.post(fn)) }

// post makes the queue's goroutine run fn soon. It does not block.
func (e *Engine) post(fn func()) *command {
	cmd := &command{run: fn, done: make(chan struct{})}
	e.cmds.add(cmd)
	e.wake()
	return cmd
}

// await waits until a command has run. It returns ErrStopped if the engine stops first, and
// the error of ctx if ctx ends first.
func (e *Engine) await(ctx context.Context, cmd *command) error {
	select {
	case <-cmd.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped:
		select {
		case <-cmd.done:
			return nil
		default:
			return ErrStopped
		}
	}
}
