package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the refusals and a table of the operations. With verbose it also writes
// why zero copy is not used.
func (r Result) Print(w io.Writer, verbose bool) error {
	var b strings.Builder
	if err := r.printRefusals(&b); err != nil {
		return err
	}
	r.printWindow(&b)
	r.printCounter(&b)
	if err := r.printOperations(&b); err != nil {
		return err
	}
	for i, s := range r.Sides {
		if verbose && s.NoZeroCopy != "" {
			fmt.Fprintf(&b, "No zero copy on side %c: %s.\n", 'A'+i, s.NoZeroCopy)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) printRefusals(b *strings.Builder) error {
	b.WriteString("\nSide A also tried these operations, each on its own connection. Each got this error, and no octet of memory changed.\n\n")
	tw := tabwriter.NewWriter(b, 0, 8, 3, ' ', 0)
	for _, f := range r.Refusals {
		fmt.Fprintf(tw, "%s\t%s\n", f.Tried, f.Error)
	}
	return tw.Flush()
}

func (r Result) printWindow(b *strings.Builder) {
	w := r.Window
	fmt.Fprintf(b, "\nSide B bound a memory window to octets %d to %d of a region of %d octets without remote rights.\n"+
		"Side A wrote the window, and no other octet changed. Side B unbound the window. Side A wrote again and got this error:\n%s\n",
		w.Offset, w.Offset+w.Octets-1, w.Region, w.Refused)
}

func (r Result) printCounter(b *strings.Builder) {
	c := r.Counter
	fmt.Fprintf(b, "\n%d peers and the program of side B added 1 to a word in the memory of side B, %d times each and at the same time.\n"+
		"The word is %d: no addition was lost.\n", c.Peers, c.Each, c.Value)
}

func (r Result) printOperations(b *strings.Builder) error {
	b.WriteString("\nThe data that was moved. Goodput includes the time to generate the octets and to check each octet that arrived.\n\n")
	tw := tabwriter.NewWriter(b, 0, 8, 3, ' ', 0)
	fmt.Fprintf(tw, "operation\t\toctets\tmessages\ttime\tgoodput\tframes out of A\tframes into A\tpath\n")
	for _, op := range r.Operations {
		out, in := "-", "-"
		if op.Frames != nil {
			out, in = fmt.Sprint(op.Frames[0].Out), fmt.Sprint(op.Frames[0].In)
		}
		fmt.Fprintf(tw, "%s\t%s to %s\t%d\t%d\t%.2f s\t%.2f Gb/s\t%s\t%s\t%s\n",
			op.Name, op.From, op.To, op.Octets, op.Messages, op.Seconds, op.Gbps, out, in, op.Path)
	}
	return tw.Flush()
}
