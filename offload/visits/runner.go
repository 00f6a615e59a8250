package visits

import (
	"github.com/stag-rdma/stag/offload/clock"
)

// Runner runs the steps of connections. A Runner is an engine, or a connection over the
// kernel's TCP. Any goroutine may call a Runner if it holds no lock of an adapter or of
// a layer.
type Runner interface {
	// Visit does the work that is there now.
	Visit(now clock.Instant)
	// Awake reports whether the runner's own goroutine runs.
	Awake() bool
	// Watch tells the runner that the calling goroutine is going to sleep. The runner
	// then watches for arrivals itself.
	Watch()
}

// Sleeper is a Runner in which a visitor can sleep until octets of the peer arrive. The
// visitor then does the work itself, and no other goroutine is woken for it.
type Sleeper interface {
	Runner

	// Doze sleeps until something has arrived, until Nudge, or for some milliseconds.
	// Meanwhile the keeper leaves arrivals to the visitor, which calls Visit when Doze
	// returns. Doze does not sleep if ready reports true: Doze calls it after the moment
	// from which on Nudge ends the sleep. Doze returns false if the visitor must call Watch
	// and wait in another way: nothing has arrived for long, another visitor dozes, or
	// nothing will arrive any more.
	Doze(ready func() bool) bool

	// Nudge ends a Doze of another goroutine. Any goroutine may call Nudge at any time.
	Nudge()
}
