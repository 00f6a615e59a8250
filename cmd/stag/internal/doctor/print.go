package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/stag-rdma/stag/loader/doctor"
)

// Style says how a report is printed.
type Style struct {
	All    bool // also print the rows that are OK
	Colour bool // colour the words OK, hint, FAIL and unknown with escape sequences
}

// colours are those of ECMA-48: green, yellow, red, magenta.
var colours = map[doctor.Outcome]string{doctor.OK: "32", doctor.Hint: "33", doctor.Bad: "31", doctor.Unknown: "35"}

// word returns the word for a status, padded to width.
func (s Style) word(st doctor.Outcome, width int) string {
	padding := strings.Repeat(" ", max(0, width-len(st)))
	if !s.Colour {
		return string(st) + padding
	}
	return "\x1b[" + colours[st] + "m" + string(st) + "\x1b[0m" + padding
}

// Print writes the report as text: a line for each topic, below it the rows that are
// not OK, and below each row the command that helps. The end repeats the commands for
// the requirements that are not met.
func (r Report) Print(w io.Writer, s Style) error {
	var b strings.Builder
	s.table(&b, "Host", r.Host)
	switch {
	case r.Interface != "":
		s.table(&b, "Interface "+r.Interface, r.Link)
	case len(r.Interfaces) == 0:
		fmt.Fprint(&b, "Interface\n  none here but the loopback\n\n")
	default:
		fmt.Fprintf(&b, "Interface\n  not checked: run stag doctor IFACE with one of %s\n\n", strings.Join(r.Interfaces, ", "))
	}
	fmt.Fprintln(&b, "To know")
	for _, note := range r.Notes {
		fmt.Fprintln(&b, " ", note)
	}
	fmt.Fprintln(&b)
	r.conclude(&b, s)
	_, err := io.WriteString(w, b.String())
	return err
}

// conclude writes the last lines: the commands for the requirements that are not met.
func (r Report) conclude(b *strings.Builder, s Style) {
	if n := len(r.with(doctor.OK)); !s.All && n > 0 {
		fmt.Fprintf(b, "%d rows are OK and not shown: stag doctor -v shows them.\n", n)
	}
	if len(r.Lacks) > 0 {
		fmt.Fprintf(b, "Some requirements cannot be checked without %s: run the command again as root.\n", strings.Join(r.Lacks, ", "))
	}
	fmt.Fprintln(b, r.verdict())
	for _, row := range r.with(doctor.Bad) {
		fmt.Fprintf(b, "  %s: %s\n", row.Name, row.Fix)
	}
}

func (r Report) verdict() string {
	switch n := r.Failures(); {
	case r.Error != "":
		return "The interface cannot be used:"
	case n == 1:
		return "1 requirement is not met:"
	case n > 1:
		return fmt.Sprintf("%d requirements are not met:", n)
	}
	switch n := len(r.with(doctor.Unknown)); n {
	case 0:
		return "All requirements are met."
	case 1:
		return "No requirement is known to be missing; 1 row is unknown."
	default:
		return fmt.Sprintf("No requirement is known to be missing; %d rows are unknown.", n)
	}
}

// widths are the widths of the first two columns: names and statuses.
type widths struct{ name, status int }

// table writes the rows by topic, with their columns aligned.
func (s Style) table(b *strings.Builder, title string, rows []Row) {
	fmt.Fprintln(b, title)
	w := widths{status: len(doctor.Hint)}
	for _, row := range rows {
		if s.shows(row) {
			w = widths{max(w.name, len(row.Name)), max(w.status, len(row.Status))}
		}
	}
	for _, topic := range doctor.Topics {
		s.topic(b, topic, rows, w)
	}
	fmt.Fprintln(b)
}

// plural returns the plural ending of a status. Only hint has a plural.
func plural(st doctor.Outcome, n int) string {
	if st == doctor.Hint && n > 1 {
		return "s"
	}
	return ""
}

func (s Style) shows(row Row) bool { return s.All || row.Status != doctor.OK }

func (s Style) topic(b *strings.Builder, topic doctor.Topic, rows []Row, w widths) {
	count := map[doctor.Outcome]int{}
	for _, row := range rows {
		if row.Topic == topic {
			count[row.Status]++
		}
	}
	var sums []string
	for _, st := range doctor.Outcomes {
		if n := count[st]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s%s", n, s.word(st, 0), plural(st, n)))
		}
	}
	if len(sums) == 0 {
		return // the topic belongs to the other table
	}
	fmt.Fprintf(b, "  %-9s  %s\n", topic, strings.Join(sums, ", "))
	for _, row := range rows {
		if row.Topic != topic || !s.shows(row) {
			continue
		}
		fmt.Fprintf(b, "    %-*s  %s  %s\n", w.name, row.Name, s.word(row.Status, w.status), row.Detail)
		if row.Fix != "" {
			fmt.Fprintf(b, "    %-*s  %-*s  -> %s\n", w.name, "", w.status, "", row.Fix)
		}
	}
}
