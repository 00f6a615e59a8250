package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/octets"
)

// stallLimit is how long nothing may arrive at either side.
const stallLimit = 30 * time.Second

// watch shows the progress of both directions together until both transfers
// have ended.
func (o Options) watch(ctx context.Context, a, b *octets.Transfer) error {
	m := newMeter(o.Progress, 2*o.Octets)
	defer m.end()
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
			m.reach(n)
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

// meter shows how far both directions together have come.
type meter interface {
	reach(n uint64) // octets
	end()
}

func newMeter(w io.Writer, total uint64) meter {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return bar{progressbar.NewOptions64(int64(total),
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription("both ways"),
			progressbar.OptionShowBytes(true),
			progressbar.OptionUseIECUnits(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetRenderBlankState(true), // its clock starts with the first rendering
		)}
	}
	return &lines{w: w, total: total, begin: time.Now()}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// bar is for terminals. It vanishes in the end.
type bar struct{ *progressbar.ProgressBar }

func (b bar) reach(n uint64) { b.Set64(int64(n)) }
func (b bar) end()           { b.Clear() }

// lines is for files and pipes: a line every tenth of the way, except for
// the last, which the result follows.
type lines struct {
	w     io.Writer
	total uint64
	begin time.Time
	shown uint64 // tenths
}

func (l *lines) reach(n uint64) {
	// Divided first, as ten times the octets of a long run would not fit.
	tenths := n / max(l.total/10, 1)
	if tenths <= l.shown || n >= l.total {
		return
	}
	l.shown = tenths
	mib := float64(n) / (1 << 20)
	fmt.Fprintf(l.w, "both ways: %d%% of %d MiB, %.0f MiB/s\n", 10*tenths, l.total>>20, mib/time.Since(l.begin).Seconds())
}

func (l *lines) end() {}
