package octets

import "sync"

// end is the end of a connection and its cause. Fault sets both. Any goroutine may wait
// for the end.
type end struct {
	once sync.Once
	done chan struct{}
	err  error // cause of the end, valid when done is closed
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

// Err returns the cause of the end. Err returns nil if every octet has arrived and both
// sides have closed. Before Done is closed, Err returns an error that says so.
func (e *end) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return errRunning
	}
}
