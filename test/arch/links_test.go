package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// kept lists modules and directories that no installed program may link: the benchmark's
// and the tests'.
var kept = []string{
	"gonum.org/v1/plot",
	"codeberg.org/go-latex/latex",
	"codeberg.org/go-pdf/fpdf",
	"codeberg.org/go-fonts",
	"git.sr.ht/~sbinet/gg",
	"github.com/ajstarks/svgo",
	"github.com/asavie/xdp",
	module + "/test",
}

// linked returns the packages that a program links.
func linked(t *testing.T, program string) []string {
	t.Helper()
	need.Tool(t, "go")
	cmd := exec.Command("go", "list", "-deps", "./"+program)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps ./%s: %v", program, err)
	}
	return strings.Fields(string(out))
}

// barredLinks returns those of pkgs that lie in one of kept.
func barredLinks(pkgs []string) (found []string) {
	for _, pkg := range pkgs {
		if slices.ContainsFunc(kept, func(dir string) bool { return under(pkg, dir) }) {
			found = append(found, pkg)
		}
	}
	return found
}

// TestStagLinksNoBenchmark: operators run stag as root, and need neither charts nor a
// second AF_XDP library.
func TestStagLinksNoBenchmark(t *testing.T) {
	pkgs := linked(t, "cmd/stag")
	if !slices.Contains(pkgs, module+"/rdma") {
		t.Fatalf("%d packages, without rdma: looking at the wrong program", len(pkgs))
	}
	for _, pkg := range barredLinks(pkgs) {
		t.Errorf("cmd/stag links %s", pkg)
	}
}

// The rule itself must be able to fail: the benchmark links what stag must not.
func TestBarredLinks(t *testing.T) {
	found := barredLinks(linked(t, "test/bench"))
	for _, want := range []string{"gonum.org/v1/plot", "codeberg.org/go-latex/latex", "codeberg.org/go-pdf/fpdf", "github.com/asavie/xdp", module + "/test/bench/measure"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not among the packages that the benchmark links", want)
		}
	}
}

// TestStagHasNoTemplates: a program that links text/template finds methods by their names
// while it runs, so that the linker keeps every exported method of every type: 5 MB of stag.
func TestStagHasNoTemplates(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || !under(f.pkg, "cmd/stag") {
			continue
		}
		for _, use := range templates(f.ast) {
			t.Errorf("%s uses %s: write text with fmt", f.name, use)
		}
	}
}

// templates finds imports of template packages, and the functions of cobra that need them.
func templates(tree *ast.File) (found []string) {
	for _, imp := range tree.Imports {
		if strings.HasSuffix(imp.Path.Value, `/template"`) {
			found = append(found, imp.Path.Value)
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Set") && strings.HasSuffix(s.Sel.Name, "Template") {
			found = append(found, s.Sel.Name)
		}
		return true
	})
	return found
}

// The finder of templates must find them.
func TestTemplates(t *testing.T) {
	const source = `package p
import ("text/template"; "github.com/spf13/cobra")
func f(c *cobra.Command) { c.SetHelpTemplate(""); c.SetHelpFunc(nil); template.New("") }`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := templates(tree); !slices.Equal(got, []string{`"text/template"`, "SetHelpTemplate"}) {
		t.Errorf("found %q", got)
	}
}
