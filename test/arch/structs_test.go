package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// mostFields is how many fields a struct of production code may have. One with
// more has parts that deserve names of their own.
const mostFields = 40

func TestStructsAreNarrow(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		for name, n := range widths(f.ast) {
			if n > mostFields {
				t.Errorf("%s: %s has %d fields, more than %d: group those that belong together", f.name, name, n, mostFields)
			}
		}
	}
}

// widths counts the fields of each struct type that a file declares. An embedded
// struct counts as one.
func widths(f *ast.File) map[string]int {
	all := make(map[string]int)
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				all[spec.Name.Name] += max(1, len(field.Names))
			}
		}
		return true
	})
	return all
}

func TestWidths(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "a.go", `package a
type three struct { x, y int; z string }
type two struct { three; n int }
type none struct {}
type number int`, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := widths(f)
	if len(all) != 2 || all["three"] != 3 || all["two"] != 2 {
		t.Errorf("fields: %v", all)
	}
}
