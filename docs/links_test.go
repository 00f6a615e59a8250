package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// link matches a link in Markdown, with its target.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: the target of every link in a document exists, and the README links to every
// document.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to == "" || strings.Contains(to, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), to)); err != nil {
				t.Errorf("%s refers to %s: %v", page, m[1], err)
			}
		}
	}
	if links < 10 {
		t.Errorf("only %d links found", links)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !strings.Contains(string(readme), "(docs/"+page+")") {
			t.Errorf("the README does not refer to docs/%s", page)
		}
	}
}
