package docs

import (
	"bytes"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// verbRow is a row of verbs.md.
type verbRow struct {
	names []string // names of rdma-core
	word  string   // has, differs, not yet or no
	ours  []string // names of package rdma
	why   string
}

var (
	verbLine = regexp.MustCompile("(?m)^\\| (`.*`) \\| (.*?) \\| ?(.*?) \\| ?(.*?) ?\\|$")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// verbsOf returns the rows of a page.
func verbsOf(page string) (rows []verbRow) {
	for _, m := range verbLine.FindAllStringSubmatch(page, -1) {
		rows = append(rows, verbRow{inQuotes(m[1]), m[2], inQuotes(m[3]), m[4]})
	}
	return rows
}

func inQuotes(s string) (names []string) {
	for _, m := range quoted.FindAllStringSubmatch(s, -1) {
		names = append(names, m[1])
	}
	return names
}

// TestVerbs: verbs.md has one row for each name of rdma-core, and each row is complete.
// Every Go name of the page exists.
func TestVerbs(t *testing.T) {
	need.Tool(t, "go")
	page, err := os.ReadFile("verbs.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := verbsOf(string(page))
	rdma := loadRDMA(t)
	count := map[string]int{}
	for _, r := range rows {
		if wrong := r.wrong(); wrong != "" {
			t.Errorf("%q: %s", r.names, wrong)
		}
		for _, name := range r.names {
			count[name]++
		}
		for _, name := range slices.Concat(r.ours, goNames(r.why)) {
			if !hasName(rdma, name) {
				t.Errorf("%q: package rdma has no %s", r.names, name)
			}
		}
	}
	for _, name := range rdmaCore(t) {
		if count[name] != 1 {
			t.Errorf("%s has %d rows", name, count[name])
		}
	}
}

// wrong returns the mistake in a row, or "".
func (r verbRow) wrong() string {
	switch r.word {
	case "has", "differs":
		if len(r.ours) == 0 {
			return "name what package rdma has"
		}
	case "no", "not yet":
		if len(r.ours) != 0 {
			return "names what package rdma has, and says that it has nothing"
		}
	default:
		return "the word is " + r.word
	}
	return ""
}

var goName = regexp.MustCompile(`^[A-Z]\w*(\.[A-Z]\w*)?$`)

// goNames returns the words in quotes that look like names of package rdma.
func goNames(text string) (names []string) {
	for _, name := range inQuotes(text) {
		if goName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// rdmaCore returns the names that need a row.
func rdmaCore(t *testing.T) (names []string) {
	t.Helper()
	list, err := os.ReadFile("testdata/rdma-core.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if !strings.HasPrefix(line, "#") {
			names = append(names, strings.TrimSpace(line))
		}
	}
	if len(names) < 300 {
		t.Errorf("only %d names of rdma-core", len(names))
	}
	return names
}

// loadRDMA type-checks package rdma from what the compiler has written.
func loadRDMA(t *testing.T) *types.Package {
	t.Helper()
	const path = "github.com/stag-rdma/stag/rdma"
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[pkg] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		content, err := os.ReadFile(files[path])
		return io.NopCloser(bytes.NewReader(content)), err
	})
	pkg, err := imp.Import(path)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// hasName reports whether a package exports the name "Type.Member", or "Name".
func hasName(pkg *types.Package, name string) bool {
	name, member, has := strings.Cut(name, ".")
	o := pkg.Scope().Lookup(name)
	if o == nil || !o.Exported() {
		return false
	}
	if !has {
		return true
	}
	found, _, _ := types.LookupFieldOrMethod(types.NewPointer(o.Type()), true, pkg, member)
	return found != nil && found.Exported()
}

// TestVerbRows: a wrong row, and a name that does not exist, are found.
func TestVerbRows(t *testing.T) {
	for row, right := range map[string]bool{
		"| `ibv_a`, `ibv_b` | has | `QP.Close`, `Open` | |\n":          true,
		"| `ibv_a` | not yet | | |\n":                                  true,
		"| `ibv_a` | no | | There is no `QP`, but `errno`. |\n":        true,
		"| `ibv_a` | has | | |\n":                                      false,
		"| `ibv_a` | no | `QP` | |\n":                                  false,
		"| `ibv_a` | perhaps | `QP` | |\n":                             false,
		"| `ibv_a` | not yet | | |\n| `ibv_b` | has | `QP` | more |\n": true,
	} {
		rows := verbsOf(row)
		if len(rows) != strings.Count(row, "\n") {
			t.Fatalf("%q: %d rows", row, len(rows))
		}
		if wrong := rows[0].wrong(); (wrong == "") != right {
			t.Errorf("%q: %q", row, wrong)
		}
	}
	rdma := loadRDMA(t)
	for name, exists := range map[string]bool{
		"QP": true, "QP.Close": true, "SendWR.SGL": true, "Success": true, "Status.String": true, "PostError.Index": true,
		"qp": false, "QP.mu": false, "QP.Fly": false, "Nothing": false, "Completion.ID.X": false,
	} {
		if hasName(rdma, name) != exists {
			t.Errorf("%s: exists is not %v", name, exists)
		}
	}
}
