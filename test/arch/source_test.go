package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/stag-rdma/stag"

// file is one Go file of the module.
type file struct {
	name    string // slash-separated, from the module's root
	pkg     string // its directory, "." for the root
	test    bool   // _test.go
	ast     *ast.File
	imports []string
	lines   int
}

// local gives those of f's imports that are packages of the module, by their
// directories.
func (f file) local() (pkgs []string) {
	for _, imp := range f.imports {
		if rest, ok := strings.CutPrefix(imp, module+"/"); ok {
			pkgs = append(pkgs, rest)
		}
	}
	return pkgs
}

// root is the module's directory: the nearest above with a go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		t.Fatal("no go.mod above the test")
	}
}

// walk calls fn for every file that the project keeps in the source tree.
func walk(t *testing.T, fn func(name string, content []byte)) {
	t.Helper()
	base := root(t)
	err := fs.WalkDir(os.DirFS(base), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == "testdata" || d.Name()[0] == '.' || d.Name() == "bin" || d.Name() == "vendor"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		content, err := os.ReadFile(filepath.Join(base, name))
		if err == nil {
			fn(name, content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFiles parses every Go file of the module.
func goFiles(t *testing.T) (files []file) {
	t.Helper()
	set := token.NewFileSet()
	walk(t, func(name string, content []byte) {
		if path.Ext(name) != ".go" {
			return
		}
		parsed, err := parser.ParseFile(set, name, content, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		f := file{name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			ast: parsed, lines: bytes.Count(content, []byte("\n"))}
		for _, imp := range parsed.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			f.imports = append(f.imports, p)
		}
		files = append(files, f)
	})
	if len(files) < 20 {
		t.Fatalf("found only %d Go files: looking in the wrong place", len(files))
	}
	return files
}

// under reports whether pkg is dir or lies below it.
func under(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }
