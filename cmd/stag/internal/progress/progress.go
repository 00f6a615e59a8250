// Package progress shows how far an operation is.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"
)

// Meter shows the progress of an operation.
type Meter interface {
	Reach(n uint64) // reports that n octets have been moved so far
	End()
}

// New returns a meter for an operation that moves total octets: a bar on a terminal, else
// lines.
func New(w io.Writer, what string, total uint64) Meter {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return bar{progressbar.NewOptions64(int64(total),
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true),
			progressbar.OptionUseIECUnits(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetRenderBlankState(true), // the clock of the bar starts when the bar is first drawn
		)}
	}
	return &lines{w: w, what: what, total: total, begin: time.Now()}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// bar is the meter for terminals. The bar is erased at the end.
type bar struct{ *progressbar.ProgressBar }

func (b bar) Reach(n uint64) { b.Set64(int64(n)) }
func (b bar) End()           { b.Clear() }

// lines is the meter for files and pipes. It prints a line for every tenth of the
// octets. It prints no line for the last tenth, because the result follows.
type lines struct {
	w     io.Writer
	what  string
	total uint64
	begin time.Time
	shown uint64 // number of tenths that have been printed
}

func (l *lines) Reach(n uint64) {
	// Divide first: ten times the octets of a long run would overflow.
	tenths := n / max(l.total/10, 1)
	if tenths <= l.shown || n >= l.total {
		return
	}
	l.shown = tenths
	mib := float64(n) / (1 << 20)
	fmt.Fprintf(l.w, "%s: %d%% of %d MiB, %.0f MiB/s\n", l.what, 10*tenths, l.total>>20, mib/time.Since(l.begin).Seconds())
}

func (l *lines) End() {}
