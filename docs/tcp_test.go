package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPromises: every promise of tcp.md names tests, and these tests exist.
func TestPromises(t *testing.T) {
	page, err := os.ReadFile("tcp.md")
	if err != nil {
		t.Fatal(err)
	}
	promises := 0
	for _, row := range regexp.MustCompile("(?m)^\\| [^|]+ \\| (`.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		promises++
		for _, what := range missing(t, "..", row[1]) {
			t.Errorf("tcp.md: %s", what)
		}
	}
	if promises < 15 {
		t.Errorf("only %d promises found", promises)
	}
}

// missing returns the errors in a list of tests. A list has the form `offload/tcp`:
// `TestA`, `TestB`; `test/e2e`: `TestC`.
func missing(t *testing.T, base, list string) (wrong []string) {
	t.Helper()
	for part := range strings.SplitSeq(list, "; ") {
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(part, -1)
		if len(names) < 2 {
			wrong = append(wrong, part+": want a package and its tests")
			continue
		}
		has := testsOf(t, filepath.Join(base, names[0][1]))
		for _, name := range names[1:] {
			if !strings.Contains(has, "\nfunc "+name[1]+"(t *testing.T)") {
				wrong = append(wrong, names[0][1]+" has no "+name[1])
			}
		}
	}
	return wrong
}

// testsOf returns the text of all tests of a package.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestMissing: missing finds a test that does not exist.
func TestMissing(t *testing.T) {
	for list, wrong := range map[string]int{
		"`docs`: `TestMissing`, `TestPromises`":         0,
		"`docs`: `TestMissing`; `offload`: `TestNever`": 1,
		"`docs`: `TestMiss`":                            1,
		"`docs`":                                        1,
		"`nowhere`: `TestMissing`":                      1,
	} {
		if got := missing(t, "..", list); len(got) != wrong {
			t.Errorf("%s: %q, want %d", list, got, wrong)
		}
	}
}
