package load

import (
	"fmt"
	"io"
	"strings"

	"github.com/stag-rdma/stag/loader"
)

// Print writes as text what was loaded, and the commands that the user may want next.
func (l Loaded) Print(w io.Writer) error {
	var b strings.Builder
	list(&b, l.Cleaned)
	if l.Interface != "" {
		already := ""
		if l.Already {
			already = " already"
		}
		fmt.Fprintf(&b, "%s: stag is loaded%s, in %s mode, program id %d\n", l.Interface, already, l.Mode, l.Program)
		fmt.Fprintf(&b, "  instance  %s, pinned in %s\n", l.Instance, l.Directory)
		fmt.Fprintf(&b, "  room      %s, %d flows\n", count(l.Queues, "queue"), l.MaxFlows)
		fmt.Fprintf(&b, "  orphans   peers of an engine that dies are reset after %g s\n", l.OrphanWait)
		settings(&b, l.Settings)
		if l.tune != loader.TuneNothing && len(l.Settings) == 0 {
			fmt.Fprintln(&b, "  setting   nothing to change: all settings are as requested")
		}
		fmt.Fprintf(&b, "The next process that opens %s adopts the program. Next: stag show, stag ping -s -i %s; stag unload %s detaches the program.\n", l.asked, l.asked, l.Interface)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Print writes as text what was unloaded.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	for _, p := range r.Unloaded {
		p.print(&b)
	}
	list(&b, r.Cleaned)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Port) print(b *strings.Builder) {
	switch {
	case p.Stale != "":
		fmt.Fprintf(b, "%s: pins removed: %s\n", p.name(), p.Stale)
	default:
		fmt.Fprintf(b, "%s: stag is unloaded, program id %d, of instance %s\n", p.name(), p.Program, p.Instance)
	}
	if p.Left > 0 {
		fmt.Fprintf(b, "  removed   %s of processes that had died\n", count(p.Left, "flow"))
	}
	for _, l := range p.Lost {
		fmt.Fprintf(b, "  lost      %s of pid %d, which resets the peers\n", count(l.Flows, "flow"), l.PID)
	}
	settings(b, p.Settings)
}

// name returns the present name of the interface and its network namespace.
func (p Port) name() string {
	switch {
	case p.Interface == "":
		return fmt.Sprintf("the interface that was index %d", p.index)
	case p.Where != "":
		return p.Interface + " in " + p.Where
	}
	return p.Interface
}

func settings(b *strings.Builder, changes []loader.Change) {
	for _, c := range changes {
		fmt.Fprintf(b, "  setting   %v\n", c)
	}
}

func list(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(b, line)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
