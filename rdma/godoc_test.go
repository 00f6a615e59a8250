package rdma

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestGodocShowsFields: go doc prints only "type SendWR = ..." for an alias. The
// comments of the aliases of structs therefore list all fields, in their order, with
// their types and a comment for each.
func TestGodocShowsFields(t *testing.T) {
	need.Tool(t, "go")
	names := aliases(t)
	for name, typ := range map[string]reflect.Type{
		"SGE":           reflect.TypeFor[SGE](),
		"SendWR":        reflect.TypeFor[SendWR](),
		"RecvWR":        reflect.TypeFor[RecvWR](),
		"Completion":    reflect.TypeFor[Completion](),
		"QPError":       reflect.TypeFor[QPError](),
		"TerminateCode": reflect.TypeFor[TerminateCode](),
	} {
		var want []string
		for _, f := range reflect.VisibleFields(typ) {
			if !f.Anonymous {
				want = append(want, f.Name+" "+named(f.Type, names))
			}
		}
		if got := shown(t, name); !slices.Equal(got, want) {
			t.Errorf("go doc %s shows the fields\n\t%q, and there are\n\t%q", name, got, want)
		}
	}
}

// aliases returns the aliases of types.go by the type that they name: "rdmap.Code" is
// "TerminateCode".
func aliases(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Assign.IsValid() {
			names[types.ExprString(spec.Type)] = spec.Name.Name
		}
		return true
	})
	return names
}

// named returns the name of a field's type in this package.
func named(typ reflect.Type, names map[string]string) string {
	if typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8 {
		return "[]" + named(typ.Elem(), names)
	}
	if name, ok := names[typ.String()]; ok {
		return name
	}
	return strings.ReplaceAll(typ.String(), "[]uint8", "[]byte")
}

var fieldLine = regexp.MustCompile(`^\s+(\w+) +(\S+) +// \S`)

// shown returns the fields that go doc prints for a type: "ID uint64".
func shown(t *testing.T, name string) (fields []string) {
	t.Helper()
	out, err := exec.Command("go", "doc", name).CombinedOutput()
	if err != nil {
		t.Fatalf("go doc %s: %v\n%s", name, err, out)
	}
	t.Logf("%s", out)
	_, block, found := strings.Cut(string(out), fmt.Sprintf("        type %s struct {\n", name))
	block, _, closed := strings.Cut(block, "        }\n")
	if !found || !closed {
		return nil
	}
	for line := range strings.Lines(block) {
		m := fieldLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("go doc %s: no field with a type and a comment: %q", name, line)
			continue
		}
		fields = append(fields, m[1]+" "+m[2])
	}
	return fields
}
