package visits

import "github.com/stag-rdma/stag/offload/clock"

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
