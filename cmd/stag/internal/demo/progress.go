package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/stag-rdma/stag/offload/octets"
)

// stallLimit is how long nothing may arrive at either side.
const stallLimit = 30 * time.Second

// errInterrupted is what a run ends with after Ctrl-C.
var errInterrupted = errors.New("interrupted")

// watch shows the progress of both directions together until both transfers
// have ended.
func (o Options) watch(ctx context.Context, a, b *octets.Transfer) error {
	bar := progressbar.NewOptions64(int64(2*o.Octets),
		progressbar.OptionSetWriter(o.Progress),
		progressbar.OptionSetDescription("both ways"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	defer bar.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	doneA, doneB := a.Done(), b.Done()
	moved, since := uint64(0), time.Now()
	for doneA != nil || doneB != nil {
		select {
		case <-doneA:
			doneA = nil
			if err := a.Err(); err != nil {
				return fmt.Errorf("side A: %w", err)
			}
		case <-doneB:
			doneB = nil
			if err := b.Err(); err != nil {
				return fmt.Errorf("side B: %w", err)
			}
		case <-tick.C:
			n := a.Received() + b.Received()
			bar.Set64(int64(n))
			if n != moved {
				moved, since = n, time.Now()
			} else if time.Since(since) > stallLimit {
				return fmt.Errorf("nothing arrived for %v, after %d of %d octets", stallLimit, n, 2*o.Octets)
			}
		case <-ctx.Done():
			return errInterrupted
		}
	}
	return nil
}
