package engine

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// turns is how often a visitor does the work of goroutines that came meanwhile and
// found the token taken. After that, the visitor leaves the rest to Run.
const turns = 8

// Visit runs commands and one step, unless another goroutine does so. This is the
// inline mode. A goroutine that posts or polls calls Visit, so that no message waits
// for another goroutine to be scheduled. A flow whose doorbell was rung with
// RingSilently before the call has been served when Visit returns, or is being served
// by another goroutine.
//
// Run, the keeper, handles deadlines meanwhile. Run also handles arrivals, unless
// visitors come so often that they find the arrivals themselves (package visits). A
// visitor that is going to sleep must call Watch.
func (e *Engine) Visit(now clock.Instant) {
	e.visits.Enter(now)
	for range turns {
		if _, ok := e.turn(now, false); !ok {
			return // the token's holder looks at the doorbells after giving it back
		}
		if !e.doorbells.any() && !e.cmds.pending() {
			return
		}
	}
	e.port.Wake()
}

// Awake reports whether the keeper runs. If the keeper runs, it will find a doorbell
// that was rung silently before the call, and no goroutine need call Visit for that
// doorbell.
func (e *Engine) Awake() bool { return !e.rest.asleep.Load() }

// Watch makes the keeper wait for arrivals again, if the keeper leaves arrivals to
// visitors. A visitor calls Watch before it goes to sleep. After Watch, the visitor
// must look once more whether there is work for it.
func (e *Engine) Watch() {
	if e.visits.Leave() {
		e.port.Wake()
	}
}

// sleepUntilWake sleeps for limit, or until the engine's next deadline. Only Wake ends
// the sleep earlier.
func (e *Engine) sleepUntilWake(now clock.Instant, limit time.Duration) (err error) {
	e.acquire()
	e.rest.alarm = clock.Sooner(e.rest.next, now.Add(limit))
	limit = until(now, e.rest.alarm)
	e.rest.asleep.Store(true)
	e.token.Store(false)
	if e.visits.BeginSleep() && e.mayWait() {
		err = e.port.SleepUntilWake(limit)
	}
	e.visits.EndSleep()
	e.getUp()
	return err
}
