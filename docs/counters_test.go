// Package docs checks that the documents say what the code does. What can be
// generated from the code is: go test ./docs -update.
package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

// table is one of the reference: the fields of a struct, or the constants of a
// type with the names that it shows them by.
type table struct {
	title string
	intro string
	file  string // from the module's root
	typ   string
	names string // variable with the constants' names; "": a struct
	but   string // a constant that is no reason: all is well
}

var tables = []table{
	{"Steering", "What the XDP program made of each packet of the interface. Every packet counts\nonce. All but `steered`, `steered_bare` and `no_socket` go to the kernel.",
		"bpf/reason.go", "Reason", "reasonNames", ""},
	{"Engine", "What the engines of an adapter have done: `rdma.Adapter.Counters`.",
		"offload/counters.go", "Counters", "", ""},
	{"Drops of the engine", "Packets that an engine got and did not deliver; layer `engine` in\n`Counters.Drops`.",
		"offload/counters.go", "Drop", "dropNames", ""},
	{"Drops of the parser", "Packets that reached an engine and are not for it; layer `wire` in\n`Counters.Drops`.",
		"offload/wire/reason.go", "Reason", "reasonNames", "OK"},
	{"Drops of TCP", "Segments, or parts of them, that a connection did not use; layer `tcp` in\n`Counters.Drops`. The connection goes on.",
		"offload/tcp/drop.go", "Drop", "dropNames", "DropNone"},
	{"A connection", "What one connection has done since it was taken over: `rdma.QP.TCPStats`.",
		"offload/tcp/info.go", "Stats", "", ""},
	{"An AF_XDP socket", "What happened to the socket of one queue: `rdma.Adapter.SocketStats`. In frames\nunless it says otherwise.",
		"afxdp/stats.go", "Stats", "", ""},
	{"An AF_XDP socket, by the kernel", "The field `Kernel` of the same.",
		"afxdp/stats.go", "KernelStats", "", ""},
	{"Refusals", "Why the translation and protection table refuses an access. These are no\ncounters: the peer is told by a Terminate, and the error of a QP says it.",
		"tpt/stag.go", "Fault", "faultNames", "OK"},
}

const head = `# Counters

<!-- Generated from the code: go test ./docs -update -->

Every reason for which a packet or an access goes another way than its sender
wished has a name. All counters only grow.
`

// TestCounters: counters.md is what the code has.
func TestCounters(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for _, x := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| name | what |\n|---|---|\n", x.title, x.intro)
		rows, err := x.rows(parse(t, x.file))
		if err != nil {
			t.Fatalf("%s: %s: %v", x.file, x.typ, err)
		}
		for _, r := range rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(r.names, "`, `"), strings.ReplaceAll(r.what, "|", `\|`))
		}
	}
	if *update {
		if err := os.WriteFile("counters.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("counters.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("counters.md is not what the code has: go test ./docs -update. It should be\n%s", b.String())
	}
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// row is one counter, or a few that one comment explains.
type row struct {
	names []string
	what  string
}

// rows are those of the table, in the order of the code. What has no comment,
// or no name, is an error.
func (x table) rows(f *ast.File) (rows []row, err error) {
	if x.names == "" {
		rows = fields(f, x.typ)
	} else {
		rows = constants(f, x.typ, shown(f, x.names), x.but)
	}
	if len(rows) < 4 {
		return nil, fmt.Errorf("only %d found", len(rows))
	}
	for _, r := range rows {
		for _, name := range r.names {
			if name == "" || r.what == "" {
				return nil, fmt.Errorf("%q has the comment %q: it needs a name and a comment", name, r.what)
			}
		}
	}
	return rows, nil
}

// fields are the exported ones of type uint64 of a struct.
func fields(f *ast.File, typ string) (rows []row) {
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != typ {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			if kind, ok := field.Type.(*ast.Ident); !ok || kind.Name != "uint64" {
				continue
			}
			r := row{what: comment(field.Comment)}
			for _, name := range field.Names {
				r.names = append(r.names, name.Name)
			}
			rows = append(rows, r)
		}
		return false
	})
	return rows
}

// constants are those of a type which begin in one block with its iota. The
// last, how many there are, has no name.
func constants(f *ast.File, typ string, names map[string]string, but string) (rows []row) {
	for _, decl := range f.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST || !of(block.Specs[0].(*ast.ValueSpec), typ) {
			continue
		}
		for _, spec := range block.Specs {
			spec := spec.(*ast.ValueSpec)
			name := spec.Names[0].Name
			if name == "_" || name == but || counts(spec) {
				continue
			}
			rows = append(rows, row{[]string{names[name]}, comment(spec.Comment)})
		}
	}
	return rows
}

func of(spec *ast.ValueSpec, typ string) bool {
	kind, ok := spec.Type.(*ast.Ident)
	return ok && kind.Name == typ
}

// counts reports whether a constant is how many there are.
func counts(spec *ast.ValueSpec) bool {
	name := spec.Names[0].Name
	return strings.HasPrefix(strings.ToLower(name), "num") || name == "Reasons" || name == "Faults"
}

// shown are the names by which constants are shown, from the literal of the
// array with them.
func shown(f *ast.File, variable string) map[string]string {
	names := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != variable {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			pair := e.(*ast.KeyValueExpr)
			text, err := strconv.Unquote(pair.Value.(*ast.BasicLit).Value)
			if err == nil {
				names[pair.Key.(*ast.Ident).Name] = text
			}
		}
		return false
	})
	return names
}

func comment(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// TestRows: what the code does not explain is found.
func TestRows(t *testing.T) {
	const source = `package p
type Drop uint8
const (
	DropNone Drop = iota // used
	A // a reason
	B // another
	C // a third
	D%s
	NumDrops
)
var dropNames = [NumDrops]string{DropNone: "none", A: "a", B: "b", C: "c"%s}
`
	for _, c := range []struct {
		comment, name string
		well          bool
	}{{" // a fourth", `, D: "d"`, true}, {"", `, D: "d"`, false}, {" // a fourth", "", false}} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", fmt.Sprintf(source, c.comment, c.name), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := table{typ: "Drop", names: "dropNames", but: "DropNone"}.rows(f)
		if (err == nil) != c.well || c.well && (len(rows) != 4 || rows[3].names[0] != "d" || rows[3].what != "a fourth") {
			t.Errorf("%+v: %v, %v", c, rows, err)
		}
	}
}
