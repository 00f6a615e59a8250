package engine

import (
	"errors"

	"github.com/stag-rdma/stag/offload/bell"
	"github.com/stag-rdma/stag/offload/port"
)

// ErrNoWatch means that the port of an engine cannot wait for bells.
var ErrNoWatch = errors.New("the port cannot wait for bells")

// AddBell makes the goroutine of Run serve a bell beside its other work: it looks at the bell
// between steps, and an announced sleep ends when the other process writes to the bell's
// eventfd. An engine without bells pays one load for each look. lost is called when Run ends
// while it serves the bell. It must not block.
func (e *Engine) AddBell(b *bell.Bell, lost func()) error {
	w, ok := e.port.(port.Watcher)
	if !ok {
		return ErrNoWatch
	}
	if err := e.rest.bells.Add(b, lost); err != nil {
		return err
	}
	w.Watch(e.rest.bells.FD(), e.rest.bells.Clear)
	e.wake() // Run may sleep without having announced it to this bell
	return nil
}

// RemoveBell ends what AddBell has begun. When it returns, Run does not use the page of the
// bell any more, and no function of the bell runs.
func (e *Engine) RemoveBell(b *bell.Bell) { e.rest.bells.Remove(b) }

// mayWait reports whether Run may sleep: no doorbell has rung, and the other processes know
// that they must wake Run. Run calls getUp afterwards.
func (e *Engine) mayWait() bool {
	return !e.doorbells.any() && (!e.rest.bells.Some() || e.rest.bells.Announce())
}

// upAgain says to other processes that Run does not sleep any more.
func (e *Engine) upAgain() {
	if e.rest.bells.Some() {
		e.rest.bells.Withdraw()
	}
}
