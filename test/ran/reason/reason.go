// Package reason cuts the output of a failed test down to the lines that say why the test
// has failed. A log of a whole run may be cut in its middle, so ran and matrix repeat these
// lines at the end.
package reason

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	most  = 15 // lines of a reason
	heads = 4  // lines of a message at its begin, if the message is cut
	tails = 2  // lines of such a message at its end
)

// begins matches the first line of a message: what a test prints, or a panic.
var begins = regexp.MustCompile(`^(\s*\S+\.go:\d+: |panic: |fatal error: |WARNING: DATA RACE)`)

// Of returns the last lines of the output of a failed test, at most 15. A long message,
// such as the stacks of all goroutines, is cut in its middle: it must not displace the
// others. A panic is cut at its end. Of leaves out what go test prints about the begin and the end of tests.
func Of(output string) (lines []string) {
	for _, m := range messages(output) {
		switch n := len(m) - heads - tails; {
		case strings.HasPrefix(m[0], "panic: "):
			m = m[:min(len(m), most)] // the first frames say where
		case n > 1:
			m = append(append(m[:heads:heads], fmt.Sprintf("        ... %d lines", n)), m[len(m)-tails:]...)
		}
		lines = append(lines, m...)
	}
	return lines[max(0, len(lines)-most):]
}

// Line returns the first line of the last message of the output, without spaces around it.
func Line(output string) string {
	all := messages(output)
	if len(all) == 0 {
		return "it does not say why"
	}
	return strings.TrimSpace(all[len(all)-1][0])
}

// messages cuts the output into messages of one or more lines.
func messages(output string) (all [][]string) {
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \t\r\n")
		text := strings.TrimSpace(line)
		switch {
		case text == "", strings.HasPrefix(text, "=== "), strings.HasPrefix(text, "--- "):
		case len(all) == 0, begins.MatchString(line):
			all = append(all, []string{line})
		default:
			all[len(all)-1] = append(all[len(all)-1], line)
		}
	}
	return all
}
