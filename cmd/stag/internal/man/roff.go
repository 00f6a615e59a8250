package man

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// roff is a page in the language of man(7).
type roff struct{ strings.Builder }

// line adds a line of roff.
func (b *roff) line(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }

// escaped returns text so that the formatter prints it unchanged.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
}

// listed matches a comma within a word. The line may break after the comma.
var listed = regexp.MustCompile(`,(\S)`)

// text adds lines of text. The formatter fills them.
func (b *roff) text(text string) {
	for line := range strings.Lines(text) {
		line = listed.ReplaceAllString(escaped(strings.TrimSuffix(line, "\n")), `,\:$1`)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.line("%s", line)
	}
}

// verbatim adds lines that the formatter leaves unchanged.
func (b *roff) verbatim(text string) {
	b.line(".EX")
	b.text(text)
	b.line(".EE")
}

// paragraphs adds a description: paragraphs that are separated by empty lines. Indented
// lines, such as those of tables, stay unchanged.
func (b *roff) paragraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.line(".PP")
		}
		lines := strings.Split(paragraph, "\n")
		for len(lines) > 0 {
			table := strings.HasPrefix(lines[0], " ")
			n := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, " ") != table })
			if n < 0 {
				n = len(lines)
			}
			if part := strings.Join(lines[:n], "\n"); table {
				b.verbatim(part)
			} else {
				b.text(part)
			}
			lines = lines[n:]
		}
	}
}

// synopsis returns how a command is called: its name in bold, placeholders in italics.
func synopsis(cmd *cobra.Command) string {
	words := []string{`\fB` + escaped(cmd.CommandPath()) + `\fP`}
	for _, word := range strings.Fields(strings.TrimPrefix(cmd.Use, cmd.Name())) {
		if strings.Trim(word, "[]") == strings.ToUpper(strings.Trim(word, "[]")) {
			word = `\fI` + word + `\fP`
		}
		words = append(words, strings.ReplaceAll(word, "-", `\-`))
	}
	if cmd.HasAvailableSubCommands() {
		words = append(words, `\fICOMMAND\fP`)
	}
	return strings.Join(append(words, `[\fIOPTION\fP]...`), " ")
}

// commands adds an entry for each command of list.
func (b *roff) commands(list []*cobra.Command) {
	if len(list) == 0 {
		return
	}
	b.line(".SH COMMANDS")
	for _, c := range list {
		b.line(".TP\n\\fB%s\\fP(%s)", escaped(Name(c)), section)
		b.text(c.Short + ".")
	}
}

// options adds all flags. The flags that the command inherits come last.
func (b *roff) options(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	b.line(".SH OPTIONS")
	for _, set := range []*pflag.FlagSet{cmd.NonInheritedFlags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				b.option(cmd, f)
			}
		})
	}
}

// option adds a flag in the usual form: -n, --iters N.
func (b *roff) option(cmd *cobra.Command, f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	if !strings.Contains(f.Usage, "`") {
		value = valueOf(f)
	}
	names := `\fB` + escaped("--"+f.Name) + `\fP`
	if f.Shorthand != "" {
		names = `\fB` + escaped("-"+f.Shorthand) + `\fP, ` + names
	}
	switch {
	case value == "":
	case f.NoOptDefVal != "":
		names += `[=\fI` + value + `\fP]`
	default:
		names += ` \fI` + value + `\fP`
	}
	b.line(".TP\n%s", names)
	if f.Name == "help" {
		usage = "print what the command does, and its options"
	}
	if preset := f.DefValue; value != "" && !strings.Contains(usage, "(default") && !slices.Contains([]string{"", "0", "0s", "[]"}, preset) {
		usage += " (default " + preset + ")"
	}
	b.text(strings.ToUpper(usage[:1]) + usage[1:] + ".")
}

// valueOf returns the placeholder for the value of a flag. Boolean flags and counted
// flags have none.
func valueOf(f *pflag.Flag) string {
	if name, ok := values[f.Name]; ok {
		return name
	}
	switch f.Value.Type() {
	case "bool", "count":
		return ""
	case "string":
		return "TEXT"
	case "float64":
		return "SECONDS"
	case "duration":
		return "DURATION"
	}
	return "N"
}

// notes adds a section about variables or files of the command.
func (b *roff) notes(title string, what map[string]string, list []string) {
	if len(list) == 0 {
		return
	}
	b.line(".SH %s", title)
	for _, thing := range list {
		b.line(".TP\n\\fI%s\\fP", escaped(thing))
		b.text(what[thing])
	}
}

// related adds the section SEE ALSO.
func (b *roff) related(cmd *cobra.Command, list []string) {
	var all []string
	if cmd.HasParent() {
		all = append(all, cmd.Root().Name())
	}
	if p := cmd.Parent(); p != nil && p.HasParent() {
		all = append(all, Name(p))
		for _, c := range below(p) {
			if c != cmd {
				all = append(all, Name(c))
			}
		}
	}
	for _, page := range list {
		if !strings.Contains(page, "(") {
			page = cmd.Root().Name() + "-" + page
		}
		all = append(all, page)
	}
	for _, c := range below(cmd) {
		if !slices.Contains(all, Name(c)) {
			all = append(all, Name(c))
		}
	}
	for i, page := range all {
		base, number, found := strings.Cut(page, "(")
		if !found {
			number = section + ")"
		}
		all[i] = fmt.Sprintf(`\fB%s\fP(%s`, escaped(base), number)
	}
	b.line(".SH SEE ALSO\n%s", strings.Join(all, ",\n"))
}
