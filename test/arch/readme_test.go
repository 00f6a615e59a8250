package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestREADMENamesWhatIsThere: the rooms of its table are directories, in the
// order of the imports, and the targets that it tells to make are there.
func TestREADMENamesWhatIsThere(t *testing.T) {
	base := root(t)
	readme, err := os.ReadFile(filepath.Join(base, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(base, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	rooms := regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|").FindAllStringSubmatch(string(readme), -1)
	for _, m := range rooms {
		if info, err := os.Stat(filepath.Join(base, m[1])); err != nil || !info.IsDir() {
			t.Errorf("the README has a room %s, and the repository none", m[1])
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
	for _, m := range regexp.MustCompile("(?m)(?:`|^    )make ([a-z]+)").FindAllStringSubmatch(string(readme), -1) {
		if !strings.Contains(string(makefile), "\n"+m[1]+":") {
			t.Errorf("the README says make %s, and the Makefile has no such target", m[1])
		}
	}
}
