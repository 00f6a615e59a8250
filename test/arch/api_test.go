package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// public are the packages that users import. docs/api.md promises them.
var public = []string{"rdma", "offload/report", "iscsi", "iscsi/backend"}

// TestPublicPackagesExportNoLowerType: whatever a user reaches from the API of a public
// package is of a public package, of the standard library, or a type that its own
// package declares part of the API. The user can name such a type by an alias.
func TestPublicPackagesExportNoLowerType(t *testing.T) {
	need.Tool(t, "go")
	declared := declaredTypes(t)
	reached := map[string]bool{}
	for _, found := range exposures(load(t, public...)) {
		name := found.named.pkg + "." + found.named.name
		switch {
		case !slices.Contains(declared[found.named.pkg], found.named.name):
			t.Errorf("%s exports %s: give the public package a type of its own, or declare it in the comment of package %s (\"%s ...\")",
				found.by, name, found.named.pkg, declaration)
		case !found.alias:
			t.Errorf("%s exports %s, and no alias of a public package names it", found.by, name)
		}
		reached[name] = true
	}
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	for pkg, names := range declared {
		for _, name := range names {
			if !reached[pkg+"."+name] {
				t.Errorf("package %s declares %s part of the API, and no public package exports it", pkg, name)
			}
			if !strings.Contains(string(page), "`"+pkg+"."+name+"`") {
				t.Errorf("docs/api.md does not name %s.%s", pkg, name)
			}
		}
	}
	for _, pkg := range public {
		if !strings.Contains(string(page), "`"+pkg+"`") {
			t.Errorf("docs/api.md does not name package %s", pkg)
		}
	}
}

// declaration begins the sentence of a package comment that declares types part of
// the API. Their names follow, up to the full stop.
const declaration = "Part of the API of stag:"

// declaredTypes has the names that each package of the module declares.
func declaredTypes(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, f := range goFiles(t) {
		if f.test || f.ast.Doc == nil {
			continue
		}
		if names := declaredBy(f.ast.Doc.Text()); names != nil {
			all[f.pkg] = names
		}
	}
	return all
}

var identifier = regexp.MustCompile(`\b[A-Z]\w*\b`)

// declaredBy is the names that a package comment declares.
func declaredBy(comment string) []string {
	_, list, found := strings.Cut(comment, declaration)
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, ".")
	return identifier.FindAllString(list, -1)
}

func TestDeclaredBy(t *testing.T) {
	got := declaredBy("Package p does. Part of\nthe API of Others.\n\n" + declaration + " Stats,\nKernelStats. Package Q has aliases.")
	if !slices.Equal(got, []string{"Stats", "KernelStats"}) {
		t.Errorf("declared %q", got)
	}
	if got := declaredBy("Package p. STag is a name."); got != nil {
		t.Errorf("declared %q", got)
	}
}

// TestEveryPackageHasAComment: it begins as go doc expects it.
func TestEveryPackageHasAComment(t *testing.T) {
	has := map[string]bool{}
	for _, f := range goFiles(t) {
		has[f.pkg] = has[f.pkg] || isPackageComment(f.ast)
	}
	for pkg, ok := range has {
		if !ok {
			t.Errorf("package %s has no package comment: say in doc.go what it is for", pkg)
		}
	}
}

func isPackageComment(f *ast.File) bool {
	if f.Doc == nil {
		return false
	}
	text := f.Doc.Text()
	name := strings.TrimSuffix(f.Name.Name, "_test")
	if name == "main" {
		return text != ""
	}
	return strings.HasPrefix(text, "Package "+name+" ")
}
