package docs

import (
	"os"
	"strings"
	"testing"
)

// TestRulesHaveTests: each rule of the page names at least one test, and each test exists
// in the file of its link.
func TestRulesHaveTests(t *testing.T) {
	page, err := os.ReadFile("memory-safety.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| rule") {
			continue
		}
		rules++
		links := codeLink.FindAllStringSubmatch(line, -1)
		if len(links) == 0 {
			t.Errorf("a rule without a test: %s", line)
		}
		for _, l := range links {
			if name, file := l[1], l[2]; !strings.HasPrefix(name, "Test") || !declares(t, file, name) {
				t.Errorf("%s does not declare a test %s", strings.TrimPrefix(file, "../"), name)
			}
		}
	}
	if rules < 20 {
		t.Errorf("only %d rules found", rules)
	}
}
