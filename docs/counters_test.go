// Package docs checks the documents against the code. go test ./docs -update
// rewrites the documents that are generated from the code.
package docs

import (
	"errors"
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

	"github.com/stag-rdma/stag/offload/report"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

// table is a table of counters.md. Its rows are the fields of a struct, or the
// constants of a type with the names under which they are shown.
type table struct {
	title string
	layer string
	intro string
	file  string // file with the type, from the module's root
	typ   string
	names string // variable with the constants' names; "": a struct
	where string // file with the variable names, if it is not file; "": it is file
	but   string // constant that is not a reason, such as OK
}

var tables = []table{
	{title: "Steering", layer: "steer", file: "bpf/reason.go", typ: "Reason", names: "reasonNames",
		intro: "The XDP program counts each packet of the interface once, by what it did with the packet. All\npackets but those of the first four counters go to the kernel. `stag show stats` shows these\ncounters. If the program is loaded to stay, it shows them also while no engine runs."},
	{title: "Placeholders", layer: "placeholder", file: "offload/nic/strays.go", typ: "Counters",
		intro: "A placeholder is the kernel socket that holds the addresses and ports of a\nconnection that was taken over. The counter is updated every second. `stag show stats` shows it."},
	{title: "Engine", layer: "engine", file: "offload/engine/counters.go", typ: "Counters",
		intro: "The engine of each queue counts these. `stag show stats` shows these counters. In Go\n`rdma.Adapter.Counters` has the sums."},
	{title: "Drops of the engine", layer: "engine", file: "offload/engine/counters.go", typ: "Drop", names: "dropNames",
		intro: "Packets that an engine received and did not deliver. `stag show stats` shows these counters; in\nGo `Counters.Drops` has them."},
	{title: "Drops of the parser", layer: "wire", file: "offload/wire/reason.go", typ: "Reason", names: "reasonNames", but: "OK",
		intro: "Packets that reached an engine and that its parser refused. `stag show stats` shows these\ncounters; in Go `Counters.Drops` has them."},
	{title: "Drops of TCP", layer: "tcp", file: "offload/tcp/drop.go", typ: "Drop", names: "dropNames", but: "DropNone",
		intro: "Segments, or parts of them, that a connection did not use. The connection continues. `stag show\nstats` shows these counters; in Go `Counters.Drops` has them."},
	{title: "A connection", layer: "tcp", file: "offload/tcp/info.go", typ: "Stats",
		intro: "Each connection counts these from its take-over on. `stag show flows` shows these counters; in\nGo `rdma.QP.TCPStats` has them. `stag show stats` has the sum over all connections of a queue,\nincluding ended ones."},
	{title: "A queue pair", layer: "rdmap", file: "offload/rdmap/stats.go", typ: "Stats",
		intro: "Each queue pair counts these from its connection on, also over the kernel port. A message counts\nwhen its last segment has left, or has been placed. A refused message does not count. The\nready-to-receive messages of MPA revision 2 count too. `stag show qps` shows these counters.\n`stag show stats` has the sum over all queue pairs of a device, including closed ones."},
	{title: "An AF_XDP socket", layer: "xsk", file: "afxdp/stats.go", typ: "Stats",
		intro: "The AF_XDP socket of each queue has these counters. `stag show queues` and `stag show stats`\nshow them; in Go `rdma.Adapter.SocketStats` has them."},
	{title: "An AF_XDP socket, by the kernel", layer: "xsk_kernel", file: "afxdp/stats.go", typ: "KernelStats",
		intro: "The kernel counts these for the same socket. The same commands show these counters."},
	{title: "Refusals", layer: "tpt", file: "tpt/stag.go", typ: "Fault", names: "refusalNames", where: "offload/adapter/report.go", but: "OK",
		intro: "Each counter is a reason for which the adapter's translation and protection table refused an\naccess or an invalidation. A Terminate reports the reason to the peer, and the error of the QP\nnames it. `stag show stats` shows these counters."},
	{title: "A group of processes", layer: "group", file: "offload/memgroup/group.go", typ: "Counters",
		intro: "An adapter in a group ([groups.md](groups.md)) counts what it asks and answers. `stag show stats`\nshows these counters. The refused accesses are also in `tpt.stag_unresolved`."},
	{title: "The application", layer: "verbs", file: "rdma/report.go", typ: "verbsCounters",
		intro: "Events that the application of the adapter did not fetch. `stag show stats` shows this counter; in Go\n`rdma.Adapter.EventsLost` has it."},
	{title: "An iSCSI session", layer: "iscsi_initiator` and `iscsi_target", file: "iscsi/report_session.go", typ: "sessionCounters",
		intro: "Each iSCSI session counts these, in the layer of its role, over all of its connections. `stag show\niscsi -v` shows these counters. `stag show stats` has the sum over all sessions of a device,\nincluding ended ones. The layers `iscsi_initiator_latency` and `iscsi_target_latency` count the\ncompleted commands by latency: `below_32us`, `below_64us` and so on up to `below_8388608us`, and\n`longer`. A command counts in one of these only. Its latency begins with the step that sees it\nfirst: in a target when it has arrived."},
	{title: "Reasons of iSCSI", layer: "iscsi_initiator_reason` and `iscsi_target_reason", file: "iscsi/flow/reason.go", typ: "Reason", names: "reasonWords", but: "OK",
		intro: "Each counter is a reason for which a session refused a PDU of the peer, failed a command, or ended\na connection. The same commands show these counters."},
	{title: "Moves", layer: "move", file: "offload/adapter/moves.go", typ: "moveCounters",
		intro: "Moves of connections between the ports of an adapter, for each port. An adapter with one port has\nnone of these counters. The layer `move_frozen` counts the connections that moved away by the time\nfor which no engine ran them: `below_64us` to `below_1048576us`, and `longer`. A move counts in one\nof these only. `stag show stats` shows these counters."},
	{title: "Causes of moves", layer: "move_cause", file: "offload/nic/shift.go", typ: "Cause", names: "causes",
		intro: "Connections that moved from the port to another one, by cause. `stag show stats` shows these counters."},
	{title: "Captures", layer: "capture", file: "offload/adapter/report.go", typ: "captureCounters",
		intro: "The packets of all captures of the adapter together. `stag show stats` shows these counters."},
}

const head = `# Counters

<!-- Generated from the code: go test ./docs -update -->

Each reason why stag does not use a packet, or refuses an access, has a counter with a name.
Counters never decrease. ` + "`stag show stats`" + ` prints a counter as its layer, a dot, and its
name. With ` + "`--all`" + ` it also prints counters that are 0. In JSON every counter has its layer
and its name.
`

// TestCounters: counters.md has exactly the counters and comments of the code.
func TestCounters(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for _, x := range tables {
		fmt.Fprintf(&b, "\n## %s\n\nLayer `%s`.\n\n%s\n\n| name | meaning |\n|---|---|\n", x.title, x.layer, x.intro)
		names := x.file
		if x.where != "" {
			names = x.where
		}
		rows, err := x.rows(parse(t, x.file), parse(t, names))
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

// row is one counter, or several counters that share a comment.
type row struct {
	names []string
	what  string
}

// rows returns the rows of the table, in the order of the code. A counter without
// a comment or without a name is an error.
func (x table) rows(f, names *ast.File) (rows []row, err error) {
	if x.names == "" {
		rows = fields(f, x.typ)
	} else {
		rows = constants(f, x.typ, shown(names, x.names), x.but)
	}
	if len(rows) == 0 {
		return nil, errors.New("none found")
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

// fields returns the rows for the exported fields of type uint64 of a struct.
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
				r.names = append(r.names, report.Snake(name.Name))
			}
			rows = append(rows, r)
		}
		return false
	})
	return rows
}

// constants returns the rows for the constants of a type, from the block that
// begins with iota. It leaves out the last constant, which is their number.
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

// counts reports whether a constant is the number of constants of its type.
func counts(spec *ast.ValueSpec) bool {
	name := spec.Names[0].Name
	return strings.HasPrefix(strings.ToLower(name), "num") || name == "Reasons" || name == "reasons" || name == "Faults"
}

// shown returns the names under which constants are shown, from the literal of the
// array that has them.
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
				names[constant(pair.Key)] = text
			}
		}
		return false
	})
	return names
}

// constant returns the name of a constant of this or another package.
func constant(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return e.(*ast.Ident).Name
}

func comment(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// TestRows: rows returns an error for a constant without a comment or a name.
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
		rows, err := table{typ: "Drop", names: "dropNames", but: "DropNone"}.rows(f, f)
		if (err == nil) != c.well || c.well && (len(rows) != 4 || rows[3].names[0] != "d" || rows[3].what != "a fourth") {
			t.Errorf("%+v: %v, %v", c, rows, err)
		}
	}
}
