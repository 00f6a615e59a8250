package engine

import (
	"context"

	"github.com/stag-rdma/stag/offload/clock"
)

// halt ends the steps of an engine whose port has failed. The connections stay.
func (e *Engine) halt() {
	e.acquire()
	e.reader.Enter()
	e.silence()
}

// silence makes this engine run no step any more, and gives the frames of other engines
// back. The caller holds the token and has entered the reader. silence gives both up.
func (e *Engine) silence() {
	e.rest.asleep.Store(true) // a caller that has rung silently must visit: no step will see its doorbell
	e.frames.giveBack()
	e.frames.publish()
	e.ended.Store(true)
	if len(e.lanes.engines) != 0 {
		e.returnMail()
	}
	e.reader.Leave()
	e.deliver()
	e.token.Store(false)
	e.drain()
	e.after()
}

// keepHalted runs commands for the connections of a halted engine until ctx ends.
func (e *Engine) keepHalted(ctx context.Context) {
	for {
		e.acquire()
		e.now = max(clock.Now(), e.now)
		e.reader.Enter()
		e.cmds.runAll()
		e.frames.publish()
		e.wakePeers()
		e.reader.Leave()
		e.deliver()
		e.token.Store(false)
		e.drain()
		e.after()
		select {
		case <-ctx.Done():
			return
		case <-e.halted:
		}
	}
}

// wake makes the engine look at its commands and doorbells. For an engine that has ended,
// the caller itself looks at the doorbells.
func (e *Engine) wake() {
	e.port.Wake()
	if !e.ended.Load() {
		return
	}
	select {
	case e.halted <- struct{}{}: // keepHalted runs the commands
	default:
	}
	e.drain()
}

// drain does what remains to do at an engine that has ended: it returns the frames that
// wait for the engine, and passes the doorbells of connections that have left on. If
// another goroutine holds the token, that goroutine calls drain after it has given the
// token back.
func (e *Engine) drain() {
	for e.ended.Load() && (e.mail.late.Load() || e.doorbells.any()) && e.token.CompareAndSwap(false, true) {
		if e.mail.late.Swap(false) {
			e.returnMail()
		}
		e.doorbells.empty(e)
		e.wakePeers()
		e.token.Store(false)
	}
}
