//go:build verbs

package verbs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// known is the rows that cannot pass yet, with their reasons.
type known map[string]string

var theKnown = readKnown()

const knownHeading = "## Programs that do not pass yet"

// knownLine matches a line of the table: `xdp: ib_atomic_bw -R`, or without the world for both.
var knownLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+?) \\|$")

func readKnown() known {
	page, err := os.ReadFile("../../docs/verbs.md")
	if err != nil {
		panic(err)
	}
	return parseKnown(string(page))
}

func parseKnown(page string) known {
	_, section, _ := strings.Cut(page, knownHeading)
	section, _, _ = strings.Cut(section, "\n## ")
	k := known{}
	for _, m := range knownLine.FindAllStringSubmatch(section, -1) {
		k[m[1]] = m[2]
	}
	return k
}

// reason returns why a row cannot pass, or "".
func (k known) reason(where, name string) string {
	for _, key := range []string{name, where + ": " + name} {
		if why, ok := k[key]; ok {
			return why
		}
	}
	return ""
}

// TestKnown: the table is read, and rows of other sections are not.
func TestKnown(t *testing.T) {
	own(t, "table of docs/verbs.md")
	k := parseKnown("| `a` | no |\n" + knownHeading + "\n\n| row | reason |\n|---|---|\n| `b -c` | Because. |\n| `xdp: d` | Why. |\n\n## Next\n| `e` | no |\n")
	if len(k) != 2 || k.reason("kernel", "b -c") != "Because." || k.reason("xdp", "d") != "Why." || k.reason("kernel", "d") != "" {
		t.Errorf("%v", k)
	}
}
