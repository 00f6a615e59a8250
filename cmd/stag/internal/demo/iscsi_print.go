package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the refusals and a table of the octets that were moved.
func (r ISCSIResult) Print(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nA lying target and a lying initiator sent these PDUs, each in its own session. Each PDU was refused, and no octet of memory\n" +
		"and of the disk changed.\n\n")
	tw := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	fmt.Fprintf(tw, "PDU\trefused by\treason\tcommand\n")
	for _, f := range r.Refusals {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", f.Tried, f.By, f.Reason, f.Command)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	b.WriteString("\nThe data that was moved. Goodput includes the time to generate the octets and to check each octet that arrived: of the\n" +
		"writes on the disk of side B, of the reads in the buffers of side A.\n\n")
	tw = tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	fmt.Fprintf(tw, "operation\t\toctets\tplaced by tag\tcommands\ttime\tgoodput\tframes out of A\tframes into A\tpath\n")
	for i, op := range r.Operations {
		out, in := "-", "-"
		if op.Frames != nil {
			out, in = fmt.Sprint(op.Frames[0].Out), fmt.Sprint(op.Frames[0].In)
		}
		fmt.Fprintf(tw, "%s\t%s to %s\t%d\t%d\t%d\t%.2f s\t%.2f Gb/s\t%s\t%s\t%s\n",
			op.Name, op.From, op.To, op.Octets, op.Placed, op.Commands, op.Seconds, op.Gbps, out, in, r.Paths[1-i])
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
