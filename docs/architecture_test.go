package docs

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeLink is a link to a file of Go or C whose text is a name in backquotes.
var codeLink = regexp.MustCompile("\\[`([^`\\]]+)`\\]\\((\\.\\./[^)\\s]+\\.(?:go|c))\\)")

// TestArchitectureNamesCode: every name on the page that links to a file is declared in
// that file. If a function moves, the test demands that its link changes.
func TestArchitectureNamesCode(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	links := codeLink.FindAllStringSubmatch(string(page), -1)
	if len(links) < 40 {
		t.Errorf("only %d links to code found", len(links))
	}
	for _, l := range links {
		if name, file := l[1], l[2]; !declares(t, file, name) {
			t.Errorf("architecture.md: %s does not declare %s", strings.TrimPrefix(file, "../"), name)
		}
	}
}

// declares reports whether a file declares a name. The name of a method is Type.Method. A
// file also declares the end of its own path.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	if strings.HasSuffix(file, name) {
		return true
	}
	if filepath.Ext(file) != ".go" {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`\bint ` + regexp.QuoteMeta(name) + `\(`).Match(text)
	}
	found := false
	ast.Inspect(parse(t, strings.TrimPrefix(file, "../")), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found = found || method(n) == name
		case *ast.TypeSpec:
			found = found || n.Name.Name == name
		case *ast.ValueSpec:
			for _, id := range n.Names {
				found = found || id.Name == name
			}
		}
		return !found
	})
	return found
}

// method returns the name of a function, or Type.Method for a method.
func method(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// TestDeclares: declares rejects a name that its file does not declare.
func TestDeclares(t *testing.T) {
	for name, want := range map[string]bool{
		"TestDeclares": true, "table": true, "table.rows": true, "codeLink": true, "architecture_test.go": true,
		"table.columns": false, "rows": false, "Declares": false,
	} {
		file := "../docs/architecture_test.go"
		if strings.HasPrefix(name, "table") {
			file = "../docs/counters_test.go"
		}
		if got := declares(t, file, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if !declares(t, "../bpf/steer.bpf.c", "stag_steer") || declares(t, "../bpf/steer.bpf.c", "stag_ste") {
		t.Error("functions of C are not told apart")
	}
}
