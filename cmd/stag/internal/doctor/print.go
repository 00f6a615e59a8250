package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the report as text: a line for each requirement and, below it,
// the command that puts it right.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	table(&b, "Host", r.Host)
	switch {
	case r.Error != "":
		fmt.Fprintf(&b, "Interface %s\n  %s\n\n", r.Interface, r.Error)
	case r.Interface != "":
		table(&b, "Interface "+r.Interface, r.Link)
	case len(r.Interfaces) == 0:
		fmt.Fprint(&b, "Interface\n  none here but the loopback\n\n")
	default:
		fmt.Fprintf(&b, "Interface\n  not asked about; stag doctor IFACE, with one of %s\n\n", strings.Join(r.Interfaces, ", "))
	}
	fmt.Fprintln(&b, "To know")
	for _, note := range r.Notes {
		fmt.Fprintln(&b, " ", note)
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) verdict() string {
	switch n := r.Failures(); {
	case r.Error != "":
		return "The interface cannot be used."
	case n == 1:
		return "1 requirement is not met."
	case n > 1:
		return fmt.Sprintf("%d requirements are not met.", n)
	}
	return "Everything that is required is there."
}

// table writes rows with their columns aligned.
func table(b *strings.Builder, title string, rows []Row) {
	width := 0
	for _, row := range rows {
		width = max(width, len(row.Name))
	}
	fmt.Fprintln(b, title)
	for _, row := range rows {
		fmt.Fprintf(b, "  %-*s  %-4s  %s\n", width, row.Name, row.Status, row.Detail)
		if row.Fix != "" {
			fmt.Fprintf(b, "  %-*s        -> %s\n", width, "", row.Fix)
		}
	}
	fmt.Fprintln(b)
}
