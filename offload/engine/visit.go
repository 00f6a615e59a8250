package engine

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// turns is how often a visitor does the work of those who came meanwhile and
// found the token taken, before it leaves the rest to Run.
const turns = 8

// Visit runs commands and one step, if nobody else is doing so: the inline mode.
// Whoever posts or polls calls it, and no message waits for another goroutine to
// be scheduled. Whose bell rang silently before is served when it returns, or
// another goroutine is at it.
//
// Run, the keeper, minds deadlines meanwhile; arrivals too, unless visitors come
// so often that it need not (package visits). Who has visited and goes to sleep
// calls Watch.
func (e *Engine) Visit(now clock.Instant) {
	e.visits.Enter()
	for range turns {
		if _, ok := e.turn(now, false); !ok {
			return // whoever has the token looks at the bells after giving it back
		}
		if !e.bells.any() && !e.cmds.pending() {
			return
		}
	}
	e.port.Wake()
}

// Awake reports whether the keeper is at work. A bell that rang before, silently,
// it will find: then nobody need visit for it.
func (e *Engine) Awake() bool { return !e.rest.asleep.Load() }

// Watch makes the keeper wait for arrivals, if it leaves them to visitors. A
// visitor that goes to sleep calls it before, and then looks once more whether
// there is something for it.
func (e *Engine) Watch() {
	if e.visits.Leave() {
		e.port.Wake()
	}
}

// doze sleeps for limit, or until the engine's next deadline. Only Wake ends it
// sooner.
func (e *Engine) doze(now clock.Instant, limit time.Duration) (err error) {
	e.acquire()
	e.rest.alarm = clock.Sooner(e.rest.next, now.Add(limit))
	limit = until(now, e.rest.alarm)
	e.rest.asleep.Store(true)
	e.token.Store(false)
	if e.visits.LieDown() && !e.bells.any() {
		err = e.port.Nap(limit)
	}
	e.visits.GetUp()
	e.getUp()
	return err
}
