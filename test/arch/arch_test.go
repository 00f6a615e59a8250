package arch

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// order is the architecture: a package may import only packages before it.
// Rooms that are still to be built have their place already.
var order = []string{
	"offload/port",
	"offload/undo",
	"offload/gate",
	"offload/order",
	"offload/pack",
	"bpf",
	"tpt",
	"afxdp/ring",
	"afxdp",
	"offload/seq",
	"offload/wire",
	"loader/netdev",
	"loader",
	"loader/choice",
	"loader/doctor",
	"offload/clock",
	"offload/signal",
	"offload/socket",
	"offload/stream",
	"offload/portable",
	"offload/work",
	"offload/bell",
	"offload/octets",
	"offload/tcp",
	"offload/mpa",
	"offload/ddp",
	"offload/reach",
	"offload/rdmap",
	"offload/visits",
	"offload/handoff",
	"offload/kernelport",
	"offload/tap",
	"offload/health",
	"offload/engine",
	"offload/nic",
	"offload/heap",
	"iscsi/scsi",
	"iscsi/pdu",
	"iscsi/login",
	"iscsi/unit",
	"iscsi/block",
	"iscsi/nbd",
	"iscsi/ublk",
	"iscsi/backend",
	"iscsi/flow",
	"iscsi/session",
	"offload/report",
	"offload/control",
	"offload/memgroup",
	"offload/upgrade",
	"rdma/proto",
	"offload/adapter",
	"rdma",
	"rdma/rendezvous",
	"rdma/daemon",
	"iscsi/iser",
	"iscsi",
	"iscsi/attach",
	"docs/examples",
	"cmd/stag",
}

// rank is a package's place in the order. Packages below cmd/stag share its place, and
// so do those below docs/examples. The packages of test/ stand outside.
func rank(pkg string) (int, bool) {
	for _, top := range []string{"cmd/stag", "docs/examples"} {
		if under(pkg, top) {
			pkg = top
		}
	}
	i := slices.Index(order, pkg)
	return i, i >= 0
}

func TestImportsPointDown(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || under(f.pkg, "test") {
			continue
		}
		for _, complaint := range wrongImports(f.pkg, f.local()) {
			t.Errorf("%s: %s", f.name, complaint)
		}
	}
}

// wrongImports says what is wrong with a package's imports from the module.
func wrongImports(pkg string, deps []string) (complaints []string) {
	mine, ok := rank(pkg)
	if !ok {
		return []string{"package " + pkg + " has no place in the order: give it one"}
	}
	for _, dep := range deps {
		its, ok := rank(dep)
		switch {
		case under(dep, "test"):
			complaints = append(complaints, pkg+" imports "+dep+", which only tests may")
		case !ok:
			complaints = append(complaints, pkg+" imports "+dep+", which has no place in the order")
		case under(pkg, "cmd/stag") && under(dep, "cmd/stag"): // its own parts
		case its >= mine:
			complaints = append(complaints, pkg+" imports "+dep+", which stands above it")
		}
	}
	return complaints
}

// TestExamplesUseThePublicAPI: an example is a program as a user of stag writes it. It
// imports rdma, and no package that is not promised to users.
func TestExamplesUseThePublicAPI(t *testing.T) {
	var examples []string
	for _, f := range goFiles(t) {
		if f.test || !under(f.pkg, "docs/examples") {
			continue
		}
		for _, dep := range f.local() {
			if dep != "rdma" {
				t.Errorf("%s imports %s: an example imports rdma only", f.name, dep)
			}
			examples = append(examples, f.pkg)
		}
	}
	slices.Sort(examples)
	if got := slices.Compact(examples); len(got) < 3 {
		t.Errorf("examples that import rdma are %q: looking in the wrong place", got)
	}
}

// The rule itself must be able to fail.
func TestWrongImports(t *testing.T) {
	for _, c := range []struct {
		pkg, dep string
		wrong    bool
	}{
		{"offload/tcp", "offload/wire", false},
		{"offload/wire", "offload/tcp", true},
		{"offload/engine", "afxdp", false},
		{"afxdp", "offload/engine", true},
		{"offload/tcp", "offload/tcp", true},
		{"offload/tcp", "test/simnic", true},
		{"offload/tcp", "offload/nowhere", true},
		{"nowhere", "bpf", true},
		{"cmd/stag/doctor", "loader", false},
		{"cmd/stag", "cmd/stag/doctor", false},
		{"rdma", "cmd/stag", true},
	} {
		if got := wrongImports(c.pkg, []string{c.dep}); (len(got) != 0) != c.wrong {
			t.Errorf("%s importing %s: %q", c.pkg, c.dep, got)
		}
	}
}

// Mapped memory and untyped pointers live in files that say so.
func TestUnsafeOnlyWhereNamed(t *testing.T) {
	for _, f := range goFiles(t) {
		generated := under(f.pkg, "bpf") && ast.IsGenerated(f.ast)
		named := strings.HasSuffix(f.name, "_unsafe.go") || strings.HasSuffix(f.name, "_unsafe_test.go")
		if slices.Contains(f.imports, "unsafe") && !named && !generated {
			t.Errorf("%s imports unsafe: move that to a file named *_unsafe.go", f.name)
		}
		if slices.Contains(f.imports, "C") {
			t.Errorf("%s uses cgo", f.name)
		}
	}
}

// machines are the packages that do no I/O: they are given the time and their
// luck, and run on their caller's goroutine.
var machines = []string{
	"offload/wire", "offload/signal", "offload/work", "offload/tcp", "offload/mpa", "offload/ddp", "offload/rdmap", "offload/health", "iscsi/scsi", "iscsi/pdu", "iscsi/login", "iscsi/unit", "iscsi/flow", "iscsi/session", "tpt",
}

// Packages that machines do not import, and why.
var barred = map[string]string{
	"math/rand":    "chance",
	"math/rand/v2": "chance",
	"crypto/rand":  "chance",
	"log":          "logging",
	"log/slog":     "logging",
	"sync":         "locks",
	"os":           "input and output",
	"net":          "input and output",
	"context":      "waiting",
}

// Functions of package time that read or wait for the real one, and the one
// function of ours that does.
var realTime = map[string][]string{
	"time":  {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"clock": {"Now"},
}

// tpt has writers on several goroutines, who take turns.
func exempt(pkg, imp string) bool { return pkg == "tpt" && imp != "log" && imp != "log/slog" }

func TestMachinesAreMachines(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || !slices.Contains(machines, f.pkg) {
			continue
		}
		for _, imp := range f.imports {
			if why, bad := barred[imp]; bad && !exempt(f.pkg, imp) {
				t.Errorf("%s imports %s: no %s in a protocol machine", f.name, imp, why)
			}
		}
		for _, complaint := range unmechanical(f.ast) {
			t.Errorf("%s: %s in a protocol machine", f.name, complaint)
		}
	}
}

// unmechanical finds real time, goroutines and channels.
func unmechanical(tree ast.Node) (found []string) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if ok && slices.Contains(realTime[pkg.Name], n.Sel.Name) {
				found = append(found, pkg.Name+"."+n.Sel.Name)
			}
		case *ast.GoStmt:
			found = append(found, "a goroutine")
		case *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
			found = append(found, "a channel")
		}
		return true
	})
	return found
}

// maxLines is how long a file may be unless its first comment gives a reason,
// with the word "lines" in it.
const maxLines = 500

func TestFilesAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.lines <= maxLines || ast.IsGenerated(f.ast) {
			continue
		}
		if len(f.ast.Comments) == 0 || !strings.Contains(f.ast.Comments[0].Text(), "lines") {
			t.Errorf("%s has %d lines: split it, or say in its first comment why so many lines", f.name, f.lines)
		}
	}
	walk(t, func(name string, content []byte) {
		n := strings.Count(string(content), "\n")
		switch path.Ext(name) {
		case ".c", ".sh":
			if first, _, _ := strings.Cut(string(content), "\n\n"); n > maxLines && !strings.Contains(first, "lines") {
				t.Errorf("%s has %d lines: split it, or say in its first comment why so many lines", name, n)
			}
		}
	})
}
