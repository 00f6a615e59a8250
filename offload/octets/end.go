package octets

import "sync"

// end is what is left when a connection has ended. Fault sets it, anybody
// waits for it.
type end struct {
	once sync.Once
	done chan struct{}
	err  error // valid when done is closed
}

func newEnd() end { return end{done: make(chan struct{})} }

func (e *end) finish(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// Done is closed when the connection has ended.
func (e *end) Done() <-chan struct{} { return e.done }

// Err says how the connection ended: nil when everything has arrived and both
// sides have closed. Valid when Done is closed.
func (e *end) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return errRunning
	}
}
