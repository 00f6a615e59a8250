package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/progress"
)

// stallLimit is how long an operation may go on without progress.
const stallLimit = 30 * time.Second

// watch runs both ends of an operation and shows the progress until both have ended. It
// returns the error of the end that failed first.
func (o Options) watch(ctx context.Context, src *source, dst *sink) error {
	m := progress.New(o.Progress, dst.op.String(), dst.octets)
	defer m.End()
	return attend(ctx, src, dst, m.Reach)
}

// attend runs both ends of an operation until both have ended, and reports how many octets
// have been moved.
func attend(ctx context.Context, src *source, dst *sink, reach func(octets uint64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ends := make(chan error, 2)
	go func() { ends <- src.run(ctx) }()
	go func() { ends <- dst.run(ctx) }()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var failed error
	moved, last := uint64(0), time.Now()
	for running := 2; running > 0; {
		select {
		case err := <-ends:
			running--
			if err != nil && failed == nil {
				failed = err
				cancel(err) // stops the other end, which would wait for messages
			}
		case <-tick.C:
			n := dst.reached.Load()
			reach(n)
			if n != moved {
				moved, last = n, time.Now()
			} else if time.Since(last) > stallLimit {
				cancel(fmt.Errorf("nothing arrived for %v, after %d of %d octets", stallLimit, n, dst.octets))
			}
		}
	}
	return failed
}
