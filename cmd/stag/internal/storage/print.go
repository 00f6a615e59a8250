package storage

import (
	"fmt"
	"io"
	"time"
)

// announce prints the first lines of iscsi-perf.
func (o *LoadOptions) announce(d *disk) error {
	if o.Out == nil {
		return nil
	}
	kind, op := "SEQUENTIAL", "READ"
	if o.Random {
		kind = "RANDOM"
	}
	if o.Write {
		op = "WRITE"
	}
	text := fmt.Sprintf("connected to %s over %s\ncapacity is %d blocks or %d byte (%d MB)\nperforming %s %s with %d parallel requests\nFIXED transfer size of %d blocks (%d byte)\n",
		public(o.URL), o.Path(), d.Size()/d.block(), d.Size(), d.Size()>>20, kind, op, o.Depth, o.Blocks, int64(o.Blocks)*d.block())
	if o.Time > 0 {
		text += fmt.Sprintf("will run for %v seconds.\n", o.Time.Seconds())
	}
	_, err := io.WriteString(o.Out, text)
	return err
}

// Print prints the last line of iscsi-perf, and lines with latencies and processor time.
func (r Load) Print(w io.Writer) error {
	text := fmt.Sprintf("\nfinished.\niops average %.0f (%.0f MB/s)\n", r.IOPS, r.MiBs)
	if l := r.Latency; l != nil {
		text += fmt.Sprintf("latency %.1f/%.1f/%.1f us (min/avg/max), %.1f/%.1f/%.1f us (50%%/99%%/99.9%%)\n", l.Min, l.Avg, l.Max, l.P50, l.P99, l.P999)
	}
	text += fmt.Sprintf("CPU %.1f%% of this process, %.1f%% of the machine (100%% is one processor)\n", r.CPU.Process, r.CPU.Machine)
	_, err := io.WriteString(w, text)
	return err
}

// current prints the present rates, once a second.
type current struct {
	l     *loop
	at    time.Time // of the line before
	count uint64    // commands up to then
}

func (l *loop) newCurrent() *current { return &current{l: l, at: l.begun} }

func (c *current) show(now time.Time) {
	w := c.l.o.Current
	if w == nil || now.Sub(c.at) < time.Second {
		return
	}
	rate := float64(c.l.count-c.count) / now.Sub(c.at).Seconds()
	average := float64(c.l.count) / now.Sub(c.l.begun).Seconds()
	mib := func(iops float64) float64 { return iops * float64(c.l.octets) / (1 << 20) }
	fmt.Fprintf(w, "\rlba %d, iops current %.0f (%.0f MB/s), iops average %.0f (%.0f MB/s), in_flight %d        ",
		uint64(c.l.next)*uint64(c.l.o.Blocks), rate, mib(rate), average, mib(average), c.l.o.Depth-len(c.l.free))
	c.at, c.count = now, c.l.count
}
