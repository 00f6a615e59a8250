package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Print writes a table of the gaps, and what was not lost.
func (r FailoverResult) Print(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nThe longest time without an arrival of octets, of stag and of a TCP connection of the kernels in the same run. Each end\n" +
		"of the connection moves to another port; frozen is the longest time for which a move stopped an end.\n\n")
	tw := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	fmt.Fprintf(tw, "operation\t\toctets\tevent\ttimes\tstag\tkernel's TCP\tfrozen\tcauses\n")
	for _, op := range r.Operations {
		fmt.Fprintf(tw, "%s\t%s to %s\t%d\tnone\t-\t%s\t%s\t-\t-\n", op.Name, op.From, op.To, op.Octets, ms(op.Gap), ms(op.KernelGap))
		for _, s := range op.sums() {
			fmt.Fprintf(tw, "\t\t\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Name, s.times, ms(s.Gap), s.kernel(), ms(s.Frozen), strings.Join(s.Causes, ", "))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nEvery octet was compared where it arrived, and was right. One connection carried all operations: its ends moved %d times.\n"+
		"Resets: %d.\n", r.Moves, r.Resets)
	_, err := io.WriteString(w, b.String())
	return err
}

// ms returns a number of seconds as milliseconds.
func ms(seconds float64) string { return fmt.Sprintf("%.1f ms", 1e3*seconds) }

// sum is what all events of one name did.
type sum struct {
	FailoverEvent
	times int
}

func (s *sum) kernel() string {
	if s.KernelGap == nil {
		return "-"
	}
	return ms(*s.KernelGap)
}

// sums returns the largest figures of the events of each name, in the order of their first
// events.
func (op FailoverOperation) sums() (all []*sum) {
	for _, e := range op.Events {
		i := slices.IndexFunc(all, func(s *sum) bool { return s.Name == e.Name })
		if i < 0 {
			e.Causes = slices.Clone(e.Causes)
			all = append(all, &sum{e, 1})
			continue
		}
		all[i].add(e)
	}
	return all
}

func (s *sum) add(e FailoverEvent) {
	s.times++
	s.Gap, s.Frozen, s.Moves = max(s.Gap, e.Gap), max(s.Frozen, e.Frozen), s.Moves+e.Moves
	if s.KernelGap != nil && e.KernelGap != nil {
		most := max(*s.KernelGap, *e.KernelGap)
		s.KernelGap = &most
	}
	for _, cause := range e.Causes {
		if !slices.Contains(s.Causes, cause) {
			s.Causes = append(s.Causes, cause)
		}
	}
	slices.Sort(s.Causes)
}
