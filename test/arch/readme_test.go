package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// text reads a file of the module.
func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestArchitectureNamesWhatIsThere: the rooms in the table of docs/architecture.md
// are directories, in the order of the imports.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	last := -1
	rooms := regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|").FindAllStringSubmatch(text(t, "docs/architecture.md"), -1)
	for _, m := range rooms {
		if info, err := os.Stat(filepath.Join(root(t), m[1])); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md has a room %s, and the repository none", m[1])
		}
		at, known := rank(m[1])
		if known && at < last {
			t.Errorf("%s stands below a room that imports it", m[1])
		}
		if known {
			last = at
		}
	}
	if len(rooms) < 10 {
		t.Errorf("only %d rooms found", len(rooms))
	}
}

// TestDocumentsMakeWhatThereIs: the Makefile has every target that a document tells
// the reader to make.
func TestDocumentsMakeWhatThereIs(t *testing.T) {
	makefile := text(t, "Makefile")
	pages, err := filepath.Glob(filepath.Join(root(t), "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, filepath.Join(root(t), "README.md")) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)(?:`|^    )make ([a-z]+)").FindAllStringSubmatch(string(content), -1) {
			found++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s says make %s, and the Makefile has no such target", filepath.Base(page), m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d targets found", found)
	}
}
