package perf

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// show prints the progress of a round every second, on a terminal only. stop erases the progress line, and may be
// called twice.
func (s *runner) show(m *meter, size int) (stop func()) {
	if s.Progress == nil || !s.drives() {
		return func() {}
	}
	if _, err := unix.IoctlGetTermios(int(s.Progress.Fd()), unix.TCGETS); err != nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var before uint64
		for shown := false; ; shown = true {
			select {
			case <-quit:
				if shown {
					fmt.Fprint(s.Progress, "\r\033[K")
				}
				return
			case <-tick.C:
				n := m.sofar()
				fmt.Fprintf(s.Progress, "\r\033[K%d bytes: %d iterations, %.2f Gb/s", size, n, 8*float64(n-before)*float64(size)/1e9)
				before = n
			}
		}
	}()
	return sync.OnceFunc(func() { close(quit); <-gone })
}
