package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recipe returns a block of docs/failover.md: the one that begins with the words kind, such
// as "sh keepalived".
func recipe(t testing.TB, kind string) (text string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/failover.md")
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for line := range strings.Lines(string(page)) {
		switch {
		case in && line == "```\n":
			return text
		case in:
			text += line
		case line == "```"+kind+"\n":
			in = true
		}
	}
	t.Fatalf("docs/failover.md has no block %q", kind)
	return ""
}

// recipes lists the blocks of docs/failover.md that are recipes. Tests run all of them.
var recipes = []string{"sh static", "sh keepalived", "conf keepalived", "sh frr", "conf frr", "conf router"}

// TestRecipesAreRun checks that docs/failover.md has the blocks that tests run, and no other.
func TestRecipesAreRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/failover.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?m)^```((?:sh|conf)\\b.*)$").FindAllStringSubmatch(string(page), -1) {
		found = append(found, m[1])
	}
	if !slices.Equal(found, recipes) {
		t.Errorf("docs/failover.md has the recipes %q, and tests run %q", found, recipes)
	}
}

// put replaces words of a recipe: old, new, old, new. Every old word must be there.
func put(t testing.TB, text string, words ...string) string {
	t.Helper()
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(text, words[i]) {
			t.Fatalf("the recipe does not say %q", words[i])
		}
	}
	return strings.NewReplacer(words...).Replace(text)
}
