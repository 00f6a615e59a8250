package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the result as a table.
func (r Result) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintf(tw, "\tside A\tside B\n")
	row := func(name string, cell func(Side) string) {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", name, cell(r.Sides[0]), cell(r.Sides[1]))
	}
	row("path", func(s Side) string { return s.Path })
	row("octets received", func(s Side) string { return fmt.Sprint(s.OctetsReceived) })
	row("checksum", func(s Side) string { return s.Checksum + verdict(s) })
	if r.Offloaded {
		row("frames in", func(s Side) string { return fmt.Sprint(s.FramesIn) })
		row("frames out", func(s Side) string { return fmt.Sprint(s.FramesOut) })
		row("taken over in", func(s Side) string { return fmt.Sprintf("%.1f ms", s.HeldMillis) })
	}
	row("retransmissions", func(s Side) string { return fmt.Sprint(s.Retransmissions) })
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%.2f s, %.2f Gb/s both ways together, MTU %d\n", r.Seconds, r.Gbps, r.MTU)
	return err
}

func verdict(s Side) string {
	if s.Checksum == s.Expected {
		return " (as sent)"
	}
	return " (WRONG: sent was " + s.Expected + ")"
}
