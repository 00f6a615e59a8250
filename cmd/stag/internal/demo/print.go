package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the result as a table; with verbose, also why zero copy is not
// used.
func (r Result) Print(w io.Writer, verbose bool) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	row := func(name string, cell func(Side) any) {
		fmt.Fprintf(tw, "%s\t%v\t%v\n", name, cell(r.Sides[0]), cell(r.Sides[1]))
	}
	fmt.Fprintf(tw, "\tside A\tside B\n")
	row("path", func(s Side) any { return s.Path })
	row("octets received", func(s Side) any { return s.OctetsReceived })
	row("checksum", func(s Side) any { return s.Checksum + " (as sent)" })
	if r.Offloaded {
		row("frames in", func(s Side) any { return s.Offload.FramesIn })
		row("frames out", func(s Side) any { return s.Offload.FramesOut })
		row("retransmissions", func(s Side) any { return s.Offload.Retransmissions })
		row("taken over in", func(s Side) any { return fmt.Sprintf("%.1f ms", s.Offload.HeldMillis) })
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i, s := range r.Sides {
		if verbose && s.Offload != nil && s.Offload.NoZeroCopy != "" {
			fmt.Fprintf(&b, "no zero copy on side %c: %s\n", 'A'+i, s.Offload.NoZeroCopy)
		}
	}
	fmt.Fprintf(&b, "\n%.2f s, %.2f Gb/s both ways together", r.Seconds, r.Gbps)
	if r.MTU != 0 {
		fmt.Fprintf(&b, ", MTU %d", r.MTU)
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}
